"""Ember's network: a Llama of 5 blocks, written for training on one CPU core with Debian's PyTorch 1.13.

Master weights are fp32; matrix products run in bf16 (oneDNN uses the matrix unit where the CPU has one); the
residual stream, norms and the loss are fp32. The norms have no gain while training (a gain would be redundant
with the matrix behind it); the exporter writes ones. Rotary embedding is computed on halves of a head; the
exporter reorders rows to the adjacent pairs that GGUF's llama wants.
"""
import math

import torch
import torch.nn.functional as F

BF16 = torch.bfloat16

CONFIG = dict(n_layer=5, n_embd=256, n_ff=512, n_head=4, n_head_kv=2, head_dim=64, n_vocab=1536,
              rope_base=10000.0, eps=1e-5, n_ctx=2048)


class RmsNorm(torch.autograd.Function):
    """[tokens][256] fp32 -> bf16, without gain."""

    @staticmethod
    def forward(ctx, x, eps):
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        r = torch.rsqrt(norm * norm / x.shape[-1] + eps)
        y = (x * r).to(BF16)
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    def backward(ctx, dy):
        y, r = ctx.saved_tensors
        dyf, yf = dy.float(), y.float()
        n, d = yf.shape
        dot = torch.bmm(dyf.view(n, 1, d), yf.view(n, d, 1)).view(n, 1)
        dyf.sub_(yf.mul_(dot / d)).mul_(r)
        return dyf, None


class SwiGlu(torch.autograd.Function):
    """silu(gate) * up on [tokens][2 n_ff] bf16 (gate first)."""

    @staticmethod
    def forward(ctx, gu):
        ctx.save_for_backward(gu)
        n = gu.shape[1] // 2
        return F.silu(gu[:, :n].float()).mul_(gu[:, n:].float()).to(BF16)

    @staticmethod
    def backward(ctx, dy):
        (gu,) = ctx.saved_tensors
        n = gu.shape[1] // 2
        gate, up = gu[:, :n].float(), gu[:, n:].float()
        dyf = dy.float()
        out = torch.empty_like(gu)
        out[:, n:].copy_(F.silu(gate).mul_(dyf))
        out[:, :n].copy_(torch.ops.aten.silu_backward(dyf.mul_(up), gate))
        return out


def rope_table(n, head_dim, base):
    """cos and sin of [n][head_dim / 2]."""
    freq = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * freq[None, :]
    return angle.cos().float(), angle.sin().float()


def turn(x, cos, sin, out):
    """Rotates the halves of the last dimension: [rows][T][heads][head_dim], cos and sin [T][1][head_dim / 2]."""
    f = x.float()
    half = f.shape[-1] // 2
    a, b = f[..., :half], f[..., half:]
    out[..., :half].copy_((a * cos).sub_(b * sin))
    out[..., half:].copy_((b * cos).add_(a * sin))


class Attention(torch.autograd.Function):
    """Causal attention on qkv [rows][T][h + 2 hk][head_dim] bf16, before rotation; gives [rows * T][h * head_dim].

    Query heads that share a key head lie side by side, so they are rows of one product.
    """

    @staticmethod
    def forward(ctx, qkv, mask, cos, sin, h):
        rows, t, n, hd = qkv.shape
        hk = (n - h) // 2
        s = 1 / math.sqrt(hd)
        q = torch.empty(rows, h, t, hd, dtype=BF16)
        k = torch.empty(rows, hk, t, hd, dtype=BF16)
        turn(qkv[:, :, :h], cos * s, sin * s, q.transpose(1, 2))
        turn(qkv[:, :, h:h + hk], cos, sin, k.transpose(1, 2))
        v = qkv[:, :, h + hk:].transpose(1, 2).reshape(rows * hk, t, hd)
        q, k = q.view(rows * hk, h // hk * t, hd), k.view(rows * hk, t, hd)
        score = torch.bmm(q, k.transpose(1, 2))
        score.view(rows, h, t, t).add_(mask)
        p = torch.softmax(score, -1)
        ctx.save_for_backward(q, k, v, p, cos, sin)
        ctx.shape = (rows, t, h, hk, hd)
        out = torch.bmm(p, v)
        return out.view(rows, h, t, hd).transpose(1, 2).reshape(rows * t, h * hd)

    @staticmethod
    def backward(ctx, dout):
        q, k, v, p, cos, sin = ctx.saved_tensors
        rows, t, h, hk, hd = ctx.shape
        s = 1 / math.sqrt(hd)
        do = dout.view(rows, t, h, hd).transpose(1, 2).reshape(rows * hk, h // hk * t, hd)
        dv = torch.bmm(p.transpose(1, 2), do)
        ds = torch._softmax_backward_data(torch.bmm(do, v.transpose(1, 2)), p, -1, BF16)
        dq, dk = torch.bmm(ds, k), torch.bmm(ds.transpose(1, 2), q)
        out = torch.empty(rows, t, h + 2 * hk, hd, dtype=BF16)
        turn(dq.view(rows, h, t, hd).transpose(1, 2), cos * s, -sin * s, out[:, :, :h])
        turn(dk.view(rows, hk, t, hd).transpose(1, 2), cos, -sin, out[:, :, h:h + hk])
        out[:, :, h + hk:].copy_(dv.view(rows, hk, t, hd).transpose(1, 2))
        return out, None, None, None, None


class Ember(torch.nn.Module):
    def __init__(self, config=CONFIG):
        super().__init__()
        c = self.config = dict(config)
        d, kv = c["n_embd"], c["n_head_kv"] * c["head_dim"]
        q = c["n_head"] * c["head_dim"]
        self.embed = torch.nn.Parameter(torch.randn(c["n_vocab"], d) * 0.05)
        self.mats = torch.nn.ParameterDict()
        for i in range(c["n_layer"]):
            self.add(f"{i}_qkv", q + 2 * kv, d, 1.0)
            self.add(f"{i}_o", d, q, 0.3)
            self.add(f"{i}_gu", 2 * c["n_ff"], d, 1.0)
            self.add(f"{i}_down", d, c["n_ff"], 0.3)

    def add(self, name, rows, cols, scale):
        self.mats[name] = torch.nn.Parameter(torch.randn(rows, cols) * scale / math.sqrt(cols))

    def block(self, i, x, w, mask, rope, shape):
        c = self.config
        rows, t = shape
        h, hk, hd = c["n_head"], c["n_head_kv"], c["head_dim"]
        qkv = F.linear(RmsNorm.apply(x, c["eps"]), w[f"{i}_qkv"]).view(rows, t, h + 2 * hk, hd)
        a = Attention.apply(qkv, mask, *rope, h)
        x = x + F.linear(a, w[f"{i}_o"]).float()
        gu = F.linear(RmsNorm.apply(x, c["eps"]), w[f"{i}_gu"])
        return x + F.linear(SwiGlu.apply(gu), w[f"{i}_down"]).float()

    def hidden(self, ids, doc):
        """ids, doc: [rows][T]; tokens see earlier tokens of the same doc. Gives [rows * T][n_embd] bf16."""
        c = self.config
        rows, t = ids.shape
        w = {k: p.to(BF16) for k, p in self.mats.items()}
        same = doc[:, :, None] == doc[:, None, :]
        same &= torch.ones(t, t, dtype=torch.bool).tril()[None]
        mask = torch.zeros(rows, t, t, dtype=BF16).masked_fill_(~same, -30000.0)[:, None]
        cos, sin = rope_table(t, c["head_dim"], c["rope_base"])
        rope = (cos[:, None, :], sin[:, None, :])
        x = F.embedding(ids.reshape(-1), self.embed)
        for i in range(c["n_layer"]):
            x = self.block(i, x, w, mask, rope, (rows, t))
        return RmsNorm.apply(x, c["eps"])

    def loss(self, ids, doc, target, weight):
        """Mean cross entropy of target (< 0: none), weighted; a token with weight 0 costs no logits."""
        h = self.hidden(ids, doc)
        pick = torch.nonzero((target.reshape(-1) >= 0) & (weight.reshape(-1) > 0))[:, 0]
        logits = F.linear(h[pick], self.embed.to(BF16)).float()
        nll = F.cross_entropy(logits, target.reshape(-1)[pick], reduction="none")
        w = weight.reshape(-1)[pick]
        return (nll * w).sum() / w.sum()
