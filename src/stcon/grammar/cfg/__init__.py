"""Context-free grammars: GBNF, EBNF, Lark and structural tags to the control machine, or to a set of stacks.

::

    text ──front end──► Source ──pushdown──► Pushdown ──frames──► Machine          deterministic
                        (syntax)             (normal)      └────► StackSetMachine  a set of stacks, on the CPU only

`stcon.grammar.cfg.compile.compile_grammar` is the way in. See ``docs/grammars.md``.
"""
