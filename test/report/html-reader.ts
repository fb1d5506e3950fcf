const VOID = new Set(['meta', 'br', 'hr', 'img', 'input', 'col', 'wbr', '!doctype']);
const RAW = /<(script|style)([^>]*)>[^]*?<\/\1>/g;
const TAG = /<(\/?)([a-zA-Z!][\w-]*)((?:\s+[\w:-]+(?:="[^"<]*")?)*)\s*(\/?)>/y;
const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  '#39': "'",
};

/**
 * What is wrong with an HTML text: tags that are not closed in order, stray `<` or `&`, ids given
 * twice.
 */
export function checkHtml(html: string): string[] {
  const wrong: string[] = [];
  const open: string[] = [];
  const ids = new Set<string>();
  const text = html.replace(RAW, '<$1$2></$1>');
  for (let at = 0; at < text.length;) {
    const next = text.indexOf('<', at);
    const between = text.slice(at, next < 0 ? undefined : next);
    for (const [entity] of between.matchAll(/&(?!(?:amp|lt|gt|quot|#39);).{0,8}/g))
      wrong.push(`stray ${entity}`);
    if (next < 0) break;
    TAG.lastIndex = next;
    const tag = TAG.exec(text);
    if (tag === null) {
      wrong.push(`stray ${text.slice(next, next + 40)}`);
      break;
    }
    const [whole, slash, name, attributes, own] = tag;
    const id = /\sid="([^"]*)"/.exec(attributes)?.[1];
    if (id !== undefined && ids.has(id)) wrong.push(`id ${id} twice`);
    if (id !== undefined) ids.add(id);
    if (slash === '/') {
      const expected = open.pop();
      if (expected !== name) wrong.push(`</${name}> closes <${expected ?? 'nothing'}>`);
    } else if (own !== '/' && !VOID.has(name.toLowerCase())) open.push(name);
    at = next + whole.length;
  }
  return [...wrong, ...open.map((name) => `<${name}> is not closed`)];
}

/** The text that a reader sees, scripts and styles left out. */
export function textOf(html: string): string {
  return (
    html
      .replace(RAW, '')
      .replace(/<[^>]*>/g, '')
      // Spaces that keep a number with its unit.
      .replaceAll('\u00a0', ' ')
      .replace(/&(\w+|#39);/g, (whole, name: string) => ENTITIES[name] ?? whole)
  );
}
