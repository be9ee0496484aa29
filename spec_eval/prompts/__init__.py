"""Pinned rows into prompts.

`load` turns a suite's data into a PromptSet: an index that stays in memory and conversations that are read again
whenever they are asked for, so that a set larger than memory can be driven.
"""

from spec_eval.prompts.conversation import Conversation, Message, PromptEntry, PromptsChanged, PromptSet
from spec_eval.prompts.load import load

__all__ = ["Conversation", "Message", "PromptEntry", "PromptSet", "PromptsChanged", "load"]
