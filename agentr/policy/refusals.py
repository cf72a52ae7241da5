"""What an API's refusal means: of this prompt, of this moment, or of all that is asked."""

import re

from agentr.errors import ConfigError, ContextOverflow, PromptRefused
from agentr.foreign import message_of
from agentr.policy.http_retry import TransientError

#: The words of vLLM, SGLang, llama.cpp, TGI, OpenAI, Anthropic, Gemini, Groq, Mistral, Cohere and Bedrock for a prompt
#: that is too long.
_OVERFLOW = re.compile(
    r"context[\s_-]*(length|window|size|limit)|maximum (model|prompt|input|sequence|context) "
    r"length|string_above_max_length|\b(prompt|input|inputs|message|messages|request|conversation)\b.{0,80}?(too "
    r"(long|large|big)|longer than|exceed|too many|must (have less|be <=))|(too (long|large|many)|exceed|longer "
    r"than|reduce)\w*.{0,60}?\b(prompt|inputs?|messages|context|token count|number of tokens)|must be at least 1, got "
    r"-|tokens? > \d+ maximum",
    re.IGNORECASE | re.DOTALL,
)
#: Theirs for one that a filter does not let through.
_FILTERED = re.compile(
    r"content[\s_-]*(filter|policy|management|exists risk)|usage polic|moderation|safety|flagged|prohibited_content|"
    r"data_inspection|inappropriate|responsible_?ai|guardrail|prompt_?block|blocked by|\bunsafe\b|harmful",
    re.IGNORECASE,
)
#: Of an account: nothing else will be answered either.
_ACCOUNT = re.compile(
    r"insufficient_(quota|balance|credit|funds)|billing|credit balance|payment|\b(account|organi[sz]ation|api key)\b",
    re.IGNORECASE,
)
#: Of a time.
_RATE = re.compile(r"per (second|minute|hour|day)|rate[\s_-]*limit|\b[rt]pm\b|try again (in|later)", re.IGNORECASE)


def refusal(status: int, data: bytes, where: str, key: str, retry_after: str = "") -> Exception:
    """Returns the error that a status other than 200, or an answer without choices, means.

    Args:
        where: The address, for the message.
        key: Name of the variable with the key.

    Returns:
        For this prompt `PromptRefused` or `ContextOverflow`, for this moment `TransientError`, for all `ConfigError`;
        with what it answered.
    """
    answer, code = message_of(data)
    numbered = re.match(r"[45]\d\d\b", code)
    how = "an answer without choices" if status == 200 else f"HTTP {status}"
    status = int(numbered[0]) if status == 200 and numbered else 500 if status == 200 else status
    words = f"{answer} {code}"
    message = f"{where} answered {how}: {answer}{f' ({code})' if code and code not in answer else ''}"
    for_all, later = _ACCOUNT.search(words), status in (408, 409, 425, 429) or status >= 500
    if not for_all and status not in (401, 404, 429):
        if _FILTERED.search(words) and not later:
            return PromptRefused(message)
        if status == 413 or (_OVERFLOW.search(words) and not _RATE.search(words)):
            return ContextOverflow(
                message, hint="Lower model.max_model_len to the API's: then an episode ends in time."
            )
    if status == 402 or (for_all and re.search("insufficient_|billing_|credit balance", words)):
        return ConfigError(message, hint=f"Check the plan and the credit of the key in {key}.")
    if later:
        return TransientError(f"{how}: {answer}", retry_after)
    if status in (401, 403):
        return ConfigError(message, hint=f"Check the key in {key}.")
    return ConfigError(
        message, hint="Check policy.openai.base_url and model; policy.openai.parameters renames what it does not know."
    )
