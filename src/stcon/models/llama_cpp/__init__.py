"""Models in GGUF files, run by llama.cpp through llama-cpp-python: quantised weights on CPUs, Metal, Vulkan and CUDA.

`LlamaCppModel` is the engine's model; `LlamaContext` is llama.cpp's decode call over sequences, and nothing more.
"""

from stcon.models.llama_cpp.model import LlamaCppModel

__all__ = ["LlamaCppModel"]
