"""stcon inside mlx-lm's own loops: ``generate``, ``stream_generate``, ``BatchGenerator`` and its server.

::

    from stcon.integrations.mlx_lm import constrained

    mlx_lm.generate(model, tokenizer, prompt, **constrained(tokenizer, grammar, max_tokens=200))

    python -m stcon.integrations.mlx_lm --model FOLDER   # mlx_lm.server, with response_format enforced

mlx-lm asks for every token. The engine on the same model (``stcon.load_model(folder, runner="mlx")``) also writes
forced text in one pass.
"""

from stcon.integrations.mlx_lm.processor import GrammarProcessor, constrained, vocabulary_of

__all__ = ["GrammarProcessor", "constrained", "vocabulary_of"]
