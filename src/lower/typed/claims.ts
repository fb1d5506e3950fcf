/**
 * Finds the axes on which the type of a local value claims that its replicas are equal (I or R).
 */
import type { Graph } from '../../graph/types.ts';
import { isTuple } from '../../local-spmd/typed.ts';
import type { Typer } from '../../local-spmd/typer.ts';

/** Axes by the name of a local value. */
export class Claims {
  readonly byLocal = new Map<string, readonly string[]>();

  constructor(private readonly typer: Typer) {}

  add(graph: Graph, name: string, local: string): void {
    const typed = this.typer.types.get(graph)?.get(name);
    if (typed === undefined || isTuple(typed)) return;
    const equal = this.typer.axes.flatMap((axis, a) =>
      typed[a] === 'I' || typed[a] === 'R' ? [axis.name] : [],
    );
    // A cast without nodes has the name of what it casts, which may be claimed on more axes.
    if (equal.length > 0)
      this.byLocal.set(local, [...new Set([...(this.byLocal.get(local) ?? []), ...equal])]);
  }
}
