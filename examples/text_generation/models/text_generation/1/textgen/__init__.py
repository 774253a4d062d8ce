"""Text generation in numpy: a tokenizer and a GPT-2 from files as Hugging Face saves them, and a generator.

    tokenizer.py    text to tokens and back
    network.py      tokens to scores for the next token, with a cache of what has been read
    weights.py      the arrays of a safetensors file
    sampling.py     which token to take, and the parameters of a request that decide it
    generator.py    continues many texts at once
    threads.py      how many cores numpy computes on
    serving.py      what the models `text_generation` and `text_generation_stream` have in common

It needs nothing but numpy. Both models import it; see the README for why it lies here.
"""
