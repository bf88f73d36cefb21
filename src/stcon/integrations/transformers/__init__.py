"""stcon inside transformers' ``generate``: a logits processor, and a decoding loop with forced text.

::

    from stcon.integrations.transformers import Constrained

    model.generate(**inputs, max_new_tokens=200, custom_generate=Constrained(grammar, tokenizer))

`Constrained` is called by ``generate`` in place of its own loop, knows its limit, and feeds forced text in one pass
where the cache allows. Where a loop takes nothing but processors::

    model.generate(**inputs, max_new_tokens=200, logits_processor=[GrammarProcessor(grammar, tokenizer, 200)])

See ``docs/integrations.md``.
"""

from stcon.integrations.transformers.generate import Constrained
from stcon.integrations.transformers.processor import GrammarProcessor
from stcon.vocab.shared import vocabulary_of

__all__ = ["Constrained", "GrammarProcessor", "vocabulary_of"]
