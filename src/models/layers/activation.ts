/** Gives the activation function that a config states. */

import type { Activation } from '../../trace/nn/feed-forward.ts';
import type { ConfigReader } from '../read-config.ts';

const NAMES = new Map<string, Activation>([
  ['silu', 'silu'],
  ['swish', 'silu'],
  ['gelu', 'gelu'],
  ['gelu_new', 'gelu_tanh'],
  ['gelu_fast', 'gelu_tanh'],
  ['gelu_pytorch_tanh', 'gelu_tanh'],
  ['relu', 'relu'],
  ['tanh', 'tanh'],
]);

/**
 * The activation that the first present of `names` states. @throws E_UNSUPPORTED for one that we do
 * not have
 */
export function activationOf(
  config: ConfigReader,
  names: readonly string[],
  fallback: string,
): Activation {
  const [given] = names.flatMap((name) => config.text(name) ?? []);
  if (given === undefined) config.tookDefault(names[0], fallback);
  const found = NAMES.get(given ?? fallback);
  if (found !== undefined) return found;
  const name = names.find((n) => config.has(n)) ?? names[0];
  throw config.inconsistent(
    name,
    `names the activation '${given}', which is not known`,
    `known: ${[...NAMES.keys()].join(', ')}`,
    'E_UNSUPPORTED',
  );
}
