/** Writes protobuf by hand, for small ONNX models in tests. */

export function bytes(...items: number[]): Uint8Array {
  return Uint8Array.from(items);
}

export function joined(...parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** An int64 as a varint. */
export function varint(value: number | bigint): Uint8Array {
  let rest = BigInt.asUintN(64, BigInt(value));
  const out: number[] = [];
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    out.push(rest > 0n ? low | 128 : low);
  } while (rest > 0n);
  return Uint8Array.from(out);
}

/** A field of wire type 0. */
export function field(number: number, value: Uint8Array): Uint8Array {
  return joined(varint(number * 8), value);
}

export function float(number: number, value: number): Uint8Array {
  const data = new Uint8Array(4);
  new DataView(data.buffer).setFloat32(0, value, true);
  return joined(varint(number * 8 + 5), data);
}

export function message(number: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const body = joined(...parts);
  return joined(varint(number * 8 + 2), varint(body.length), body);
}

export function text(number: number, value: string): Uint8Array {
  return message(number, new TextEncoder().encode(value));
}

/** A NodeProto in field 1 of a graph. */
export function node(
  op: string,
  inputs: string[],
  outputs: string[],
  ...more: Uint8Array[]
): Uint8Array {
  return message(
    1,
    ...inputs.map((name) => text(1, name)),
    ...outputs.map((name) => text(2, name)),
    text(4, op),
    ...more,
  );
}

/** A TensorProto with raw data of int64 (7) or float (1). */
export function tensor(
  number: number,
  name: string,
  type: 1 | 7,
  dims: number[],
  values: number[],
): Uint8Array {
  const raw = new DataView(new ArrayBuffer(values.length * (type === 7 ? 8 : 4)));
  values.forEach((value, i) => {
    if (type === 7) raw.setBigInt64(8 * i, BigInt(value), true);
    else raw.setFloat32(4 * i, value, true);
  });
  const sizes = dims.map((dim) => field(1, varint(dim)));
  return message(
    number,
    ...sizes,
    field(2, varint(type)),
    text(8, name),
    message(9, new Uint8Array(raw.buffer)),
  );
}

/** A ValueInfoProto: without a type, or with one. */
export function value(
  number: number,
  name: string,
  type?: number,
  dims?: readonly (number | string)[],
): Uint8Array {
  if (type === undefined || dims === undefined) return message(number, text(1, name));
  const shape = message(
    2,
    ...dims.map((dim) =>
      message(1, typeof dim === 'string' ? text(2, dim) : field(1, varint(dim))),
    ),
  );
  return message(number, text(1, name), message(2, message(1, field(1, varint(type)), shape)));
}

/** A ModelProto. */
export function onnx(opset: number, graph: readonly Uint8Array[], irVersion = 10): Uint8Array {
  return joined(
    field(1, varint(irVersion)),
    message(7, ...graph),
    message(8, field(2, varint(opset))),
  );
}
