"""One page and one Markdown file from the results of `stcon bench run`: our tables, the paper's beside them, plots."""
