"""The shapes of requests and answers, as the OpenAPI document shows them; and what fills those of videos and links.

Nothing else may be in a request, nor in an answer: tests hold every answer of every route against its model.
"""
