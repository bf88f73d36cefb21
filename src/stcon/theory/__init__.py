"""Few-path graphs: deciders, certificates and structure theorems of Section 3 and Appendix B, to run.

Pure Python without dependencies; imports nothing else of stcon.
"""
