import type { ExportSource } from '../../src/backend/target.ts';
import type { Graph } from '../../src/graph/types.ts';
import { sourceOf } from '../export/programs.ts';
import { llama, megatronSource } from '../export/recipe-plans.ts';

/** The statement that hostile names try to run: it makes a folder of this name. */
export const MARK = 'PWNED';
const CODE = `__import__("os").mkdir("${MARK}")`;

/** Ends strings, comments and elements of every language that files are written in. */
export const HOSTILE = [
  `"""; ${CODE}; """`,
  `'''; ${CODE}; '''`,
  `"; ${CODE}; "`,
  `\\"; ${CODE}; \\`,
  `\n${CODE}\n\r${CODE}\r\u2028${CODE}\u2029\f${CODE}"\x00`,
  `*/ ${CODE} /* --> <!-- </script><script>${MARK}</script><img src=x onerror=${MARK}>`,
  `\${${CODE}} {${CODE}} \`${CODE}\` $(${MARK}) %s %(x)s ]]> #\u202e\x1b[2J`,
  `{"a": [${CODE}]} - ${MARK}: &a *a !!python/object/apply:os.system ["${MARK}"]`,
].join(' ');

/** A name on one line, as cluster files must have them. */
export const HOSTILE_LINE = HOSTILE.replace(/[\x00-\x1f\x7f-\x9f\u2028-\u202e]+/g, ' ');

/** Fields whose texts are words of the graph format, not names. */
const WORDS = new Set(['kind', 'target', 'dtype', 'role', 'phase', 'mesh', 'cluster']);

/** A copy of plain data in which every text that is a name has its hostile form. */
function renamed<T>(value: T, hostile: ReadonlyMap<string, string>): T {
  const copy = (inner: unknown, key: string): unknown => {
    if (typeof inner === 'string') return WORDS.has(key) ? inner : (hostile.get(inner) ?? inner);
    if (Array.isArray(inner)) return inner.map((member) => copy(member, key));
    if (typeof inner !== 'object' || inner === null) return inner;
    return Object.fromEntries(Object.entries(inner).map(([own, part]) => [own, copy(part, own)]));
  };
  return copy(value, '') as T;
}

/** `q_proj` keeps its end, so that recipes still know what the module is. */
function hostileName(name: string): string {
  return /\w+_proj/.test(name) ? name.replace(/\w+_proj/, `${HOSTILE}$&`) : name + HOSTILE;
}

/** A graph whose nodes, parameters, modules and sources all have hostile names. */
export function hostileGraph(graph: Graph): Graph {
  const names = new Set([graph.name]);
  for (const { name, meta } of graph.nodes)
    for (const text of [name, meta.roleName, meta.path, meta.of, meta.source, meta.original])
      if (text !== undefined) names.add(text);
  return renamed(graph, new Map([...names].map((name) => [name, hostileName(name)])));
}

/** Megatron's plan of a two-layer Llama, with hostile names everywhere. */
export async function hostileSource(): Promise<ExportSource> {
  const { program, plan } = await megatronSource(hostileGraph(llama()));
  return sourceOf(program, { ...plan, model: HOSTILE, cluster: HOSTILE });
}
