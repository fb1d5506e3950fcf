/**
 * `shardwright einsum` takes an equation, the placements of its operands and the mesh dims, and
 * prints the classes of its letters, the placement of its result and the reductions that gradients
 * owe.
 */

import { ShardwrightError } from '../../../errors.ts';
import { parseMesh } from '../../../mesh/devices/mesh.ts';
import { explain } from '../../../notations/einsum/explain.ts';
import { shardRule } from '../../../notations/einsum/shard-rule.ts';
import { ruleText } from '../../../ops/record/rule.ts';
import { rulesOf } from '../../../ops/rules/einsum.ts';
import { classify, parseEinsum } from '../../../ops/rules/equation.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import type { EinsumOptions } from './flags.ts';

/**
 * `einsum "abi,aoi->abo" --shard x=S(b) --axis tp=8`: operands are x, y, z, or 0, 1, 2 and on; one
 * that is not named is R.
 */
export function einsumCommand(equation: string, options: EinsumOptions, io: CliIo): number {
  const { operands } = parseEinsum(equation);
  const { mode, shard, axis } = options;
  if (shard.length > 0 && axis.length === 0)
    throw new ShardwrightError('E_USAGE', '--shard needs the mesh dims that cut', {
      hint: 'add them, such as --axis tp=8.',
    });
  const mesh = axis.length === 0 ? undefined : parseMesh(axis.join(','));
  const [axes, sizes] = [mesh?.names ?? [], mesh?.sizes ?? []];
  const specs = operands.map(() => 'R'.repeat(axes.length));
  const given = new Set<number>();
  for (const text of shard) {
    const [, name = '', spec = ''] = /^([^=]*)=(.*)$/s.exec(text) ?? [];
    const k = /^\d{1,4}$/.test(name) ? Number(name) : NAMES.indexOf(name);
    if (k < 0 || k >= operands.length)
      throw new ShardwrightError('E_USAGE', `--shard '${text}' names no operand of '${equation}'`, {
        hint:
          'write NAME=STATES with one of ' +
          `${operands.map((_, i) => NAMES[i] ?? String(i)).join(', ')}, such as --shard x=S(0).`,
      });
    if (given.has(k))
      throw new ShardwrightError('E_USAGE', `--shard names operand '${name}' twice`);
    given.add(k);
    specs[k] = spec;
  }
  const named = { axes, sizes, mode } as const;
  if (options.json === true) {
    const sharding = shardRule(equation, specs, named);
    const answer = {
      ...sharding,
      classes: classify(equation),
      rules: rulesOf(equation).map(ruleText),
    };
    io.stdout(`${JSON.stringify(answer)}\n`);
    return EXIT.ok;
  }
  const rules =
    shard.length > 0
      ? []
      : ['rules of one mesh dim:', ...rulesOf(equation).map((r) => `  ${ruleText(r)}`)];
  io.stdout(`${[...explain(equation, specs, named), ...rules].join('\n')}\n`);
  return EXIT.ok;
}

const NAMES = ['x', 'y', 'z'];
