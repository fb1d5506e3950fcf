/** Lists the layouts that can serve a model on some devices. */

import { divisors } from '../../divisors.ts';
import type { Architecture } from '../../models/architecture.ts';
import type { ServingSizes } from './question.ts';

/**
 * All sizes of dp, pp and tp whose product is the number of devices, where tp divides the heads.
 * The experts of a layer lie whole on the tensor ranks of one or of several data ranks.
 */
export function servingLayouts(
  { shape, routed }: Pick<Architecture, 'shape' | 'routed'>,
  devices: number,
  asked: Partial<ServingSizes> = {},
): ServingSizes[] {
  const isAsked = (sizes: ServingSizes): boolean =>
    (Object.keys(asked) as (keyof ServingSizes)[]).every((key) => asked[key] === sizes[key]);
  return divisors(devices)
    .filter((tp) => shape.heads % tp === 0)
    .flatMap((tp) =>
      divisors(devices / tp)
        .filter((pp) => pp <= shape.layers)
        .flatMap((pp): ServingSizes[] => {
          const dp = devices / tp / pp;
          if (routed === undefined) return [{ dp, pp, tp, ep: 1 }];
          return divisors(dp)
            .map((ranks) => ranks * tp)
            .filter((ep) => routed.experts % ep === 0)
            .map((ep) => ({ dp, pp, tp, ep }));
        }),
    )
    .filter(isAsked);
}

/** The name of a layout: its mesh dims, outermost first, with their sizes. */
export function meshOf({ dp, pp, tp, ep }: ServingSizes): string {
  const dims = Object.entries({ dp, pp, tp, ep }).filter(([, size]) => size > 1);
  return dims.length === 0 ? 'tp=1' : dims.map(([name, size]) => `${name}=${size}`).join(',');
}
