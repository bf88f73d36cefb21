"""Few-path graphs: deciders, certificates and structure theorems of Section 3 and Appendix B, to run.

Pure Python without dependencies; imports nothing else of stcon. docs/theory.md maps every theorem to its function and
its test. To decide a question and check the answer::

    from stcon.theory import Digraph, StronglyFew, check_verdict, decide

    diamond = Digraph(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    question = StronglyFew(diamond, source=0, target=3, cap=1)
    verdict = decide(question, "logdcfl")
    assert not verdict.answer and check_verdict(question.requirements, verdict)
    print(verdict.certificate)  # two walks from 0 to 3
"""

from stcon.theory.budgets import PairBudget, RootBudget, StronglyFew, universal_source
from stcon.theory.certificates import Verdict
from stcon.theory.check import check_certificate, check_verdict
from stcon.theory.deciders import METHODS, decide
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.meters import TooMuchWork
from stcon.theory.readers import read_graph
from stcon.theory.walks import bounded_counts, capped_counts, count_walks, is_reach_few, is_strongly_few, walk_counts

__all__ = [
    "METHODS",
    "Digraph",
    "GraphError",
    "PairBudget",
    "RootBudget",
    "StronglyFew",
    "TooMuchWork",
    "Verdict",
    "bounded_counts",
    "capped_counts",
    "check_certificate",
    "check_verdict",
    "count_walks",
    "decide",
    "is_reach_few",
    "is_strongly_few",
    "read_graph",
    "universal_source",
    "walk_counts",
]
