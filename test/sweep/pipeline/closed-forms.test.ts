import { describe, expect, it } from 'vitest';

import {
  contextBytes,
  dataBytes,
  expertBytes,
  fsdpBytes,
  hsdpBytes,
  sequenceBytes,
  stateBytesPerDevice,
  tensorBytes,
  ulyssesBytes,
  zero1Bytes,
} from '../../support/parallelism-bytes.ts';

const MIB = 2 ** 20;
const GIB = 2 ** 30;

describe('bytes that a device sends, in closed form', () => {
  it('data parallel plans at W = G = 16 MiB on 8 devices', () => {
    expect(dataBytes(8, 16 * MIB)).toBe(28 * MIB);
    expect(zero1Bytes(8, 16 * MIB, 16 * MIB)).toBe(28 * MIB);
    expect(fsdpBytes(8, 16 * MIB, 16 * MIB)).toBe(42 * MIB);
    expect(fsdpBytes(8, 16 * MIB, 16 * MIB, false)).toBe(28 * MIB);
    expect(hsdpBytes(2, 4, 16 * MIB, 16 * MIB)).toEqual({
      shardAxis: 36 * MIB,
      replicaAxis: 4 * MIB,
    });
  });

  it('a block at b s h = 8 MiB on 4 devices', () => {
    expect(tensorBytes(4, 8 * MIB)).toBe(48 * MIB);
    expect(sequenceBytes(4, 8 * MIB)).toBe(48 * MIB);
    expect(tensorBytes(4, 8 * MIB, true)).toBe(72 * MIB);
    expect(sequenceBytes(4, 8 * MIB, true)).toBe(60 * MIB);
    expect(2 * ulyssesBytes(4, 8 * MIB, 8 * MIB)).toBe(12 * MIB);
  });

  it('a block of Llama-3.1-8B at 8192 tokens on 8 devices', () => {
    const [stream, keys] = [8192 * 4096 * 2, 8192 * 1024 * 2];
    expect(tensorBytes(8, stream)).toBe(448 * MIB);
    expect(ulyssesBytes(8, stream, keys)).toBe(17.5 * MIB);
    expect(contextBytes(8, keys)).toBe(28 * MIB);
  });

  it('tokens to experts and back', () => {
    const payload = 4096 * 8 * 7168 * 2;
    expect(payload).toBe(448 * MIB);
    const sent = expertBytes(32, 4096, 8, 7168 * 2);
    expect(sent).toBe((31 / 32) * payload);
    expect(sent).toBe(434 * MIB);
    expect(4 * sent).toBe(1736 * MIB);
  });

  it('states of Llama-3.1-8B have the closed forms of ZeRO', () => {
    const parameters = 8_030_261_248;
    expect(stateBytesPerDevice('dp', parameters, 8)).toBe(128_484_179_968);
    const gib = (plan: 'zero1' | 'zero2' | 'fsdp', n: number): number =>
      Number((stateBytesPerDevice(plan, parameters, n) / GIB).toFixed(3));
    expect(gib('zero1', 8)).toBe(41.133);
    expect(gib('zero2', 8)).toBe(28.045);
    expect(gib('fsdp', 8)).toBe(14.958);
    expect(gib('fsdp', 4)).toBe(29.915);
    expect(gib('fsdp', 64)).toBe(1.87);
  });
});
