"""stcon inside transformers' ``generate``: a logits processor.

::

    from stcon.integrations.transformers import GrammarProcessor

    model.generate(**inputs, max_new_tokens=200, logits_processor=[GrammarProcessor(grammar, tokenizer, 200)])

See ``docs/integrations.md``.
"""

from stcon.integrations.transformers.processor import GrammarProcessor
from stcon.integrations.transformers.vocabulary import vocabulary_of

__all__ = ["GrammarProcessor", "vocabulary_of"]
