#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny random DeepSeek-V3 checkpoints and what transformers says of them, in fp32 on bf16 weights.

usage: make_golden.py OUTDIR   (needs torch and transformers 5; run by hand, never by the tests)

Each OUTDIR/NAME has config.json in the style of the hub, model.safetensors (bf16, one tensor per
expert) and golden.jsonl: input ids, chosen experts by expert layer and token (ids rising), the
logits of the last position, 24 greedy ids and the smallest gaps that decided an expert or a token.
The demo model has neither YaRN nor a plain query projection; these have.
"""

import json, os, sys
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

COMMON = dict(
    vocab_size=512,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    attention_bias=False,
    attention_dropout=0.0,
    initializer_range=0.02,
    num_nextn_predict_layers=0,
    scoring_func="sigmoid",
    topk_method="noaux_tc",
    moe_layer_freq=1,
    rope_theta=10000.0,
    rope_interleave=True,
)
MODELS = {
    "yarn": dict(
        hidden_size=64,
        intermediate_size=96,
        moe_intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=40,
        kv_lora_rank=32,
        qk_nope_head_dim=24,
        qk_rope_head_dim=16,
        v_head_dim=20,
        n_routed_experts=16,
        n_shared_experts=1,
        num_experts_per_tok=4,
        first_k_dense_replace=1,
        n_group=4,
        topk_group=2,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        tie_word_embeddings=False,
        max_position_embeddings=512,
        rope_scaling=dict(
            type="yarn",
            factor=4.0,
            original_max_position_embeddings=128,
            beta_fast=32,
            beta_slow=1,
            mscale=1.0,
            mscale_all_dim=1.0,
        ),
    ),
    "plain-query": dict(
        hidden_size=48,
        intermediate_size=80,
        moe_intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        q_lora_rank=None,
        kv_lora_rank=24,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        n_routed_experts=6,
        n_shared_experts=2,
        num_experts_per_tok=3,
        first_k_dense_replace=0,
        n_group=1,
        topk_group=1,
        norm_topk_prob=False,
        routed_scaling_factor=1.5,
        tie_word_embeddings=True,
        max_position_embeddings=256,
        rope_scaling=None,
    ),
}
LENGTHS = (1, 7, 40, 150)
GREEDY = 24


def fill(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        named = list(model.named_parameters()) + [
            (n, b) for n, b in model.named_buffers() if "correction_bias" in n
        ]
        for name, p in sorted(named):
            r = torch.randn(p.shape, generator=g)
            if "correction_bias" in name:
                v = r * 0.2
            elif "norm" in name:
                v = 1 + 0.1 * r
            elif "embed_tokens" in name:
                v = r
            elif "lm_head" in name:
                v = r * 3 / p.shape[-1] ** 0.5
            elif "gate.weight" in name:
                v = r * 2 / p.shape[-1] ** 0.5
            else:
                v = r * 1.2 / p.shape[-1] ** 0.5
            p.copy_(v if "correction_bias" in name else v.bfloat16().float())


def hub_tensors(model, tied):
    w = {}
    for k, v in list(model.state_dict().items()):
        if tied and k == "lm_head.weight":
            continue
        if k.endswith("experts.gate_up_proj"):
            half = v.shape[1] // 2
            for e in range(len(v)):
                w[k.replace("gate_up_proj", f"{e}.gate_proj.weight")] = v[e, :half]
                w[k.replace("gate_up_proj", f"{e}.up_proj.weight")] = v[e, half:]
        elif k.endswith("experts.down_proj"):
            for e in range(len(v)):
                w[k.replace("down_proj", f"{e}.down_proj.weight")] = v[e]
        else:
            w[k] = v
    return {
        k: (v.float() if "correction_bias" in k else v.bfloat16()).contiguous().clone()
        for k, v in sorted(w.items())
    }


@torch.no_grad()
def golden(model, ids):
    chosen, hooks = [], []
    for layer in model.model.layers:
        if hasattr(layer.mlp, "gate"):
            hooks.append(layer.mlp.gate.register_forward_hook(lambda m, a, o: chosen.append(o)))
    logits = model(torch.tensor([ids])).logits[0, -1]
    for h in hooks:
        h.remove()
    experts = [[sorted(row) for row in c[2].tolist()] for c in chosen]
    seq, gaps = list(ids), []
    for _ in range(GREEDY):
        top = model(torch.tensor([seq])).logits[0, -1].topk(2)
        seq.append(int(top.indices[0]))
        gaps.append(float(top.values[0] - top.values[1]))
    return dict(
        input_ids=ids,
        experts=experts,
        logits=[round(v, 6) for v in logits.tolist()],
        greedy_ids=seq[len(ids) :],
        greedy_gap_min=min(gaps),
    )


def main(out):
    for seed, (name, shape) in enumerate(MODELS.items()):
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        config = {**COMMON, **shape}
        model = (
            AutoModelForCausalLM.from_config(
                AutoConfig.for_model("deepseek_v3", **config), attn_implementation="eager"
            )
            .float()
            .eval()
        )
        fill(model, 7 + seed)
        save_file(
            hub_tensors(model, config["tie_word_embeddings"]),
            os.path.join(folder, "model.safetensors"),
            metadata={"format": "pt"},
        )
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(
                {
                    "architectures": ["DeepseekV3ForCausalLM"],
                    "model_type": "deepseek_v3",
                    "torch_dtype": "bfloat16",
                    **config,
                },
                f,
                indent=1,
            )
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        g = torch.Generator().manual_seed(99)
        with open(os.path.join(folder, "golden.jsonl"), "w") as f:
            for n in LENGTHS:
                if n + GREEDY > config["max_position_embeddings"]:
                    continue
                x = golden(model, torch.randint(3, 512, (n,), generator=g).tolist())
                f.write(json.dumps(x) + "\n")
                print(name, n, x["greedy_ids"][:6], x["greedy_gap_min"])


if __name__ == "__main__":
    main(sys.argv[1])
