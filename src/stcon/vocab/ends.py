"""Tokens by which the models we know end a text or a turn."""

from __future__ import annotations

from collections.abc import Mapping

END_NAMES = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "</s>",
    "<eos>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|eot|>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|endofturn|>",
    "<|return|>",
    "<|call|>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
)


def known_ends(added: Mapping[str, int]) -> list[int]:
    """Ids of the added tokens (surface form → id) that are in `END_NAMES`, in its order."""
    return [added[name] for name in END_NAMES if name in added]
