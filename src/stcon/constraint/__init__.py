"""Control of one output: which token may come next (`matcher`), and which ones need no model (`forced`)."""
