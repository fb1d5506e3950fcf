/**
 * Takes a value and the redistributions of one use; writes them in the body where they are priced,
 * each shared copy once.
 */

import { internalError, ShardwrightError } from '../errors.ts';
import { without } from '../graph/value.ts';
import type { ShardingSpace } from '../mesh/sharding/space.ts';
import type { Dataflow } from '../strategy/dataflow.ts';
import type { Move } from './control.ts';
import type { Emitter } from './program/emitter.ts';
import type { Frame } from './program/frame.ts';
import type { DimOrder } from './program/memory-orders.ts';
import type { RedistributionWriter, Route } from './redistribution.ts';

/** The place where nodes are written, as moves see it. */
export type MoveEmitter = Pick<Emitter, 'section' | 'meta' | 'isBackward'>;

interface MoverParts {
  readonly space: ShardingSpace;
  readonly flow: Dataflow;
  readonly emit: MoveEmitter;
  /** Frames by scope of the opened graph. */
  readonly frames: ReadonlyMap<number, Frame>;
  readonly route: Route;
  readonly writer: Pick<RedistributionWriter, 'write'>;
  readonly orderOf: (value: number) => DimOrder;
  /** Notes the local name that a value has after a redistribution. */
  readonly brought: (local: string, value: number) => void;
}

export class Mover {
  constructor(private readonly parts: MoverParts) {}

  /**
   * Brings a value to a use; gives the name of the redistributed value in the frame of the use.
   *
   * @throws E_PLAN where the redistributions of the plan do not lead from one placement to the
   *   other
   */
  bring(frame: Frame, { value, phase, moves, to, scope, use }: Move): string {
    const { space, flow, emit, frames, route, writer, orderOf, brought } = this.parts;
    const { meta } = flow.values[value];
    const at = moves.length === 0 ? frame : frames.get(scope);
    if (at === undefined) throw internalError(`${use} is moved in a body that is not there`);
    let now = at.find(value);
    if (now === undefined) throw damaged(`${use} is used before it is made`);
    emit.section = at.section;
    for (const move of moves) {
      const [from, next] = [space.parse(move.from), space.parse(move.to)];
      if (from !== now.sharding)
        throw damaged(`the plan moves ${use} from ${move.from}, it is ${space.text(now.sharding)}`);
      // Plans of earlier versions do not number their copies: each pass had its own.
      const key = `${value}:${move.copyId ?? phase}:${move.from}:${move.to}`;
      // The plan lists what loops hand on after all nodes, so the use that it says makes a copy
      // need not be the first here.
      const kept = move.copy === undefined ? undefined : at.copies.get(key);
      if (kept !== undefined) {
        now = kept;
        continue;
      }
      const steps = route(value, from, next);
      if (steps === undefined) throw damaged(`the plan moves ${use} in a way that is refused`);
      // A body of the backward pass has forward values too; what is moved may be either.
      if (emit.isBackward(now.name) && emit.meta.phase === 'forward')
        emit.meta = without(emit.meta, 'phase');
      now = { name: writer.write(steps, now.name, meta.shape, orderOf(value)), sharding: next };
      brought(now.name, value);
      if (move.copy !== undefined) at.copies.set(key, now);
    }
    if (now.sharding !== to)
      throw damaged(
        `the plan leaves ${use} in ${space.text(now.sharding)}, wanted ${space.text(to)}`,
      );
    return frame.bring(now.name, at);
  }
}

/**
 * The lowering follows the plan: where its redistributions do not connect, someone changed the
 * plan.
 */
function damaged(message: string): ShardwrightError {
  return new ShardwrightError('E_PLAN', message, { hint: 'restore the plan, or make it again.' });
}
