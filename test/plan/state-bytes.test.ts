import { describe, expect, test } from 'vitest';

import { stateMemory } from '../../src/plan/choice/decode.ts';
import { randomChoice } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { load, request, TABLE } from './support.ts';

/** Meshes whose sizes divide some of the dims and not others. */
const CASES = [
  ['torch/mlp/joint.expanded', 'd=4'],
  ['torch/mlp/joint.expanded', 'a=3,b=2'],
  ['peers/uneven-65536', 'x=3,y=8'],
  ['torch/llama-tiny/joint.expanded', 'a=2,b=3'],
] as const;

describe('bytes of states in plans', () => {
  test.each(CASES)(
    '%s on %s: one more cut of one parameter never takes more, all devices together hold all of it',
    (name, mesh) => {
      const { model } = prepare(load(name), request(mesh), TABLE);
      const { space } = model;
      const choice = randomChoice(model, 1);
      let pairs = 0;
      for (const [n, { localElements }] of model.stateBytes) {
        const { set } = model.strategies.nodes[n]!;
        const variable = model.nodeVariable[n];
        const specs = Array.from(localElements, (_, s) => space.get(set.specs[s]));
        const whole = specs.findIndex((s) => s.placements.every((p) => p.kind === 'replicate'));
        const bytesAt = (s: number) => stateMemory(model, choice.with(variable, s));
        for (const [a, before] of specs.entries()) {
          expect(localElements[a] * space.mesh.size, before.text).toBeGreaterThanOrEqual(
            localElements[whole],
          );
          for (const [b, after] of specs.entries()) {
            // One mesh dim cuts in `after` what `before` has whole on it; the rest, orders
            // included, is the same.
            const changed = before.placements.flatMap((p, m) =>
              p.equals(after.placements[m]) ? [] : [m],
            );
            if (changed.length !== 1 || before.placements[changed[0]].kind !== 'replicate')
              continue;
            const rest = (orders: typeof before.orders): string =>
              JSON.stringify(
                [...orders]
                  .map(([d, o]) => [d, o.filter((m) => m !== changed[0])])
                  .filter(([, o]) => (o as number[]).length > 0),
              );
            if (rest(after.orders) !== rest(before.orders)) continue;
            pairs++;
            const [less, more] = [bytesAt(b), bytesAt(a)];
            for (const key of [
              'peakBytes',
              'parameterBytes',
              'gradientBytes',
              'optimizerBytes',
            ] as const)
              expect(less[key], `${before.text} to ${after.text}: ${key}`).toBeLessThanOrEqual(
                more[key],
              );
          }
        }
      }
      expect(pairs).toBeGreaterThan(model.stateBytes.size);
    },
  );
});
