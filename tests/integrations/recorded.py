"""Answers as APIs send them, each with its request and what it must be read as."""

from __future__ import annotations

from typing import Any, NamedTuple

ASKED = "Where is Kessel?"
RULE = "Answer in short."
FOUND = "Kessel lies on the Dray."
THOUGHT = "The guide says it."


class Recorded(NamedTuple):
    """A response, its request, and the arguments that explain it."""

    response: dict[str, Any]
    request: dict[str, Any]
    roles: list[str]
    texts: list[str]  # of the messages, tool calls included, without reasoning
    output: str
    reasoning: str = ""


ANTHROPIC = Recorded(
    {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 90, "output_tokens": 41},
        "content": [
            {"type": "thinking", "thinking": THOUGHT, "signature": "EqQB"},
            {"type": "redacted_thinking", "data": "Emw"},
            {"type": "text", "text": "Kessel lies "},
            {"type": "text", "text": "on the Dray."},
        ],
    },
    {
        "model": "claude-sonnet-4-5",
        "system": [{"type": "text", "text": RULE, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": ASKED},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I must look.", "signature": "EpQB"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": FOUND},
                    {"type": "text", "text": "Continue."},
                ],
            },
        ],
    },
    ["system", "user", "assistant", "tool", "user"],
    [RULE, ASKED, 'I look.\nfind({"q": 1})', FOUND, "Continue."],
    "Kessel lies on the Dray.",
    THOUGHT,
)

ANTHROPIC_SEARCH = Recorded(
    {
        **ANTHROPIC.response,
        "content": [
            {"type": "text", "text": "I search."},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "Kessel"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": [
                    {
                        "type": "web_search_result",
                        "title": "Kessel, a town on the Dray",
                        "url": "https://example.org/kessel",
                        "encrypted_content": "EqgfCioIARgB",
                        "page_age": None,
                    }
                ],
            },
            {"type": "text", "text": "On the Dray."},
        ],
    },
    {"messages": [{"role": "user", "content": ASKED}]},
    ["user", "assistant", "tool"],
    [
        ASKED,
        'I search.\nweb_search({"query": "Kessel"})',
        '[{"title": "Kessel, a town on the Dray", "url": "https://example.org/kessel"}]',
    ],
    "On the Dray.",
)

GEMINI = Recorded(
    {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": THOUGHT, "thought": True},
                        {"text": "I look again."},
                        {"functionCall": {"name": "find", "args": {"q": 2}}},
                    ],
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "modelVersion": "gemini-2.5-flash",
        "responseId": "r1",
    },
    {
        "model": "gemini-2.5-flash",
        "contents": [
            ASKED,
            {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {"q": 1}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "find", "response": {"result": "None."}}}],
            },
        ],
        "config": {"system_instruction": RULE},
    },
    ["system", "user", "assistant", "tool"],
    [RULE, ASKED, 'find({"q": 1})', '{"result": "None."}'],
    'I look again.\nfind({"q": 2})',
    THOUGHT,
)

CHAT = Recorded(  # as DeepSeek, vLLM and LiteLLM send it
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "deepseek-reasoner",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {
                    "role": "assistant",
                    "content": "On the Dray.",
                    "reasoning_content": THOUGHT,
                },
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
    },
    {"messages": [{"role": "system", "content": RULE}, {"role": "user", "content": ASKED}]},
    ["system", "user"],
    [RULE, ASKED],
    "On the Dray.",
    THOUGHT,
)

RESPONSES = Recorded(
    {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": [
            {
                "id": "rs_2",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": THOUGHT}],
                "encrypted_content": "gAAAAA",
            },
            {
                "id": "ws_1",
                "type": "web_search_call",
                "status": "completed",
                "action": {"type": "search", "query": "Kessel"},
            },
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": "On the ", "annotations": []},
                    {"type": "output_text", "text": "Dray.", "annotations": []},
                ],
            },
        ],
    },
    {
        "model": "gpt-5",
        "instructions": RULE,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "I must look."}],
            },
            {"type": "function_call", "name": "find", "arguments": '{"q": 1}', "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": FOUND},
        ],
    },
    ["system", "user", "assistant", "tool", "assistant"],
    [
        RULE,
        ASKED,
        'find({"q": 1})',
        FOUND,
        'web_search({"action": {"type": "search", "query": "Kessel"}})',
    ],
    "On the Dray.",
)

ALL = {
    "anthropic": ANTHROPIC,
    "anthropic_search": ANTHROPIC_SEARCH,
    "gemini": GEMINI,
    "chat": CHAT,
    "responses": RESPONSES,
}
