import { describe, expect, test } from 'vitest';

import type { CollectiveModel } from '../../src/cost/collective-model.ts';
import { clusterNames, loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { jumpsNote, priceJumps } from '../../src/cost/jumps.ts';
import { collectiveModel } from '../../src/cost/presets/presets.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { cli, fixture } from '../cli/support.ts';

/** A model whose all_gather has the prices given by size, and everything else none that change. */
function stepped(price: (bytes: number) => number, mesh = parseMesh('dp=4')): CollectiveModel {
  const seconds = (kind: string, bytes: number): number =>
    kind === 'all_gather' ? price(bytes) : 1;
  return {
    preset: 'stepped',
    mesh,
    byteRule: 'ceil',
    chargesUnitDims: false,
    seconds,
    record: (kind, bytes) => ({ seconds: seconds(kind, bytes), kind, terms: {}, source: 'test' }),
    copySeconds: () => 0,
  };
}

describe('cost-memory 3.1: jumps of more than 15 % at powers of two are reported', () => {
  test('at the power itself or one byte above it, up or down; 15 % and less are not', () => {
    const KiB = 2 ** 10;
    const model = stepped((bytes) => {
      let t = 1;
      if (bytes >= 4 * KiB) t *= 1.2;
      if (bytes > 16 * KiB) t *= 0.8;
      if (bytes >= 64 * KiB) t *= 1.149;
      if (bytes >= 100_000) t *= 2;
      return t;
    });
    expect(
      priceJumps(model, [[0]]).map((j) => [j.kind, j.bytes, Number(j.ratio.toFixed(6))]),
    ).toEqual([
      ['all_gather', 4096, 0.2],
      ['all_gather', 16384, -0.2],
    ]);
    expect(jumpsNote(model)).toBe(
      'Prices of stepped jump by more than 15 % at 2 powers of two (512 B to 4 GiB, each mesh dim and the whole mesh): all_gather(dp) at 4.00 KiB by +20.0 %, all_gather(dp) at 16.0 KiB by -20.0 %.',
    );
  });

  test('groups of one device have none', () => {
    expect(
      priceJumps(
        stepped((b) => (b >= 4096 ? 2 : 1), parseMesh('dp=1')),
        [[0]],
      ),
    ).toEqual([]);
  });

  test('our presets have none, on any node design', { timeout: 60_000 }, () => {
    for (const name of clusterNames())
      for (const preset of ['nccl', 'alpha-beta'])
        for (const mesh of ['dp=8', 'dp=8,tp=8', 'dp=2,tp=8', 'dp=3,cp=2,tp=4'])
          expect(
            jumpsNote(collectiveModel(preset, loadCluster(name), parseMesh(mesh))),
            `${name} ${preset} ${mesh}`,
          ).toBe(undefined);
  });

  test('the ramps of the literal preset jump: 4 MiB summed over 8 nodes, where the tree of LL128 goes from 0.6 to 0.8', () => {
    const literal = collectiveModel(
      'autoparallel',
      loadCluster('dgx-h100'),
      parseMesh('dp=8,tp=8'),
    );
    const at = priceJumps(literal, [[0]]);
    expect(at.map((j) => [j.kind, j.bytes])).toEqual([['all_reduce', 2 ** 22]]);
    // As its own figures say it.
    expect(at[0].ratio).toBeCloseTo(
      literal.seconds('all_reduce', 2 ** 22, [0]) /
        literal.seconds('all_reduce', 2 ** 22 - 1, [0]) -
        1,
      12,
    );
    expect(priceJumps(literal, [[1]])).toEqual([]);
  });

  test('a plan says so where its preset has some, and nothing where it has none', async () => {
    const notes = async (cost: string): Promise<string> => {
      const { out } = await cli(
        'plan',
        '-v',
        fixture('mlp'),
        '--mesh',
        'dp=8,tp=8',
        '--cluster',
        'dgx-h100',
        '--cost',
        cost,
        '--quiet',
        '--no-recipes',
      );
      return out;
    };
    expect(await notes('autoparallel')).toMatch(
      /note {2}Prices of autoparallel jump by more than 15 % at 3 powers of two/,
    );
    expect(await notes('nccl')).not.toContain('jump');
  });
});
