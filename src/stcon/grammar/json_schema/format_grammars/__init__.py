"""What each format's language is, by topic; `stcon.grammar.json_schema.formats` collects and builds them."""
