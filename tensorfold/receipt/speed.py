"""How fast a loaded model is here: numbers without a verdict. Knows no kernel."""

from __future__ import annotations

from tensorfold.model import Model
from tensorfold.receipt.rows import some_ids


def speed(model: Model, prompt: int, tokens: int) -> dict[str, float | None]:
    """Tokens a second of one reply undrafted and drafted, of four side by side, and of a prompt; after a warm-up."""
    vocab, endless = model.config.vocab_size, dict.fromkeys(model.config.eos_token_ids, float("-inf"))

    def reply(count: int, salt: int, draft: bool) -> tuple[float | None, float | None]:
        prompts = [some_ids(prompt, salt + i, vocab) for i in range(count)]
        out = model.generate(prompts, max_tokens=tokens, draft=draft, seed=[0] * count, logit_bias=endless)
        stats = [r.stats for r in out] if isinstance(out, list) else []
        rates = [s.generation_tps for s in stats if s.generation_tps is not None]
        return (round(sum(rates), 2) if rates else None), stats[0].prompt_tps and round(stats[0].prompt_tps, 2)

    drafts = model.config.num_nextn_predict_layers > 0
    reply(1, 20, drafts)
    alone, prompt_rate = reply(1, 21, False)
    return {
        "one reply": alone,
        "one reply, drafted": reply(1, 21, True)[0] if drafts else None,
        "four replies": reply(4, 22, False)[0],
        "prompt": prompt_rate,
    }
