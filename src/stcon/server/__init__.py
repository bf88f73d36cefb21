"""OpenAI's formats: request bodies in, responses out."""
