"""Servers of language models that speak OpenAI's API, from the client's side: streams of tokens and when they came.

    root, base, endpoint = address_of("http://127.0.0.1:8000/v1")
    entries = prompts_of_file(path)                                 # one for each line of a file
    bodies, path, _ = requests_of(entries, model, base, max_tokens=128)
    bodies = probed(root, path, bodies, api_key=None)               # one answer first, in the server's own words
    result = run_load(LoadPlan(url=root, path=path, wire="openai/chat", …), bodies)

`POST /v1/chat/completions` and `/v1/completions` with `stream: true` answer with server-sent events. `answer` takes
the events out of a body, reads what they tell and keeps their times, `figures` makes times per token of them. Anything
here may come from a hostile server, so everything has a bound.
"""
