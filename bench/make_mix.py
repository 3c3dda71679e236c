#!/usr/bin/python3
"""make_mix.py Q4_K.gguf Q6_K.gguf OUT.gguf: a file as people call Q4_K_M, from two files of one shape: the embedding (the
output too, if it is tied), and attn_v and ffn_down of the first and last eighth of the layers and of every third between,
in Q6_K, all else in Q4_K. For benchmarks; tensors are copied as they lie."""
import re
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
BYTES = {0: (1, 4), 12: (256, 144), 14: (256, 210)}  # type: values and bytes of a block


def skip(d, o, kind):
    if kind == 8:
        return o + 8 + struct.unpack_from("<Q", d, o)[0]
    if kind == 9:
        inner, n = struct.unpack_from("<IQ", d, o)
        o += 12
        for _ in range(n):
            o = skip(d, o, inner)
        return o
    return o + SIZES[kind]


def parse(path):
    """(bytes before the tensor table, {name: (dims, type, data)}) of a file with alignment 32."""
    d = open(path, "rb").read()
    n_tensors, n_kv = struct.unpack_from("<QQ", d, 8)
    o = 24
    for _ in range(n_kv):
        o += 8 + struct.unpack_from("<Q", d, o)[0]
        o = skip(d, o + 4, struct.unpack_from("<I", d, o)[0])
    head, table = d[:o], []
    for _ in range(n_tensors):
        length = struct.unpack_from("<Q", d, o)[0]
        name = d[o + 8:o + 8 + length]
        o += 8 + length
        n_dims = struct.unpack_from("<I", d, o)[0]
        dims = struct.unpack_from(f"<{n_dims}Q", d, o + 4)
        kind, at = struct.unpack_from("<IQ", d, o + 4 + 8 * n_dims)
        o += 16 + 8 * n_dims
        table.append((name, dims, kind, at))
    base = (o + 31) // 32 * 32
    tensors = {}
    for name, dims, kind, at in table:
        n = 1
        for x in dims:
            n *= x
        values, size = BYTES[kind]
        tensors[name] = (dims, kind, d[base + at:base + at + n // values * size])
    return head, tensors


def is_wide(name, n_layers):
    m = re.fullmatch(rb"blk\.(\d+)\.(attn_v|ffn_down)\.weight", name)
    if not m:
        return name in (b"token_embd.weight", b"output.weight")
    i, eighth = int(m[1]), n_layers // 8
    return i < eighth or i >= 7 * n_layers // 8 or (i - eighth) % 3 == 2


def main():
    head, narrow = parse(sys.argv[1])
    _, wide = parse(sys.argv[2])
    n_layers = 1 + max(int(m[1]) for m in (re.match(rb"blk\.(\d+)\.", name) for name in narrow) if m)
    chosen = {name: (wide if is_wide(name, n_layers) else narrow)[name] for name in narrow}
    table, at = b"", 0
    for name, (dims, kind, data) in chosen.items():
        table += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        at += (len(data) + 31) // 32 * 32
    with open(sys.argv[3], "wb") as f:
        f.write(head + table)
        f.write(b"\0" * (-f.tell() % 32))
        for _, _, data in chosen.values():
            f.write(data + b"\0" * (-len(data) % 32))


if __name__ == "__main__":
    main()
