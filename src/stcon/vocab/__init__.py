"""Tokens as bytes, their trie, and the tokenizer's own way of cutting text (DESIGN §4)."""

from stcon.vocab.trie import PackedTokens, TokenTrie
from stcon.vocab.vocabulary import Vocabulary

__all__ = ["PackedTokens", "TokenTrie", "Vocabulary"]
