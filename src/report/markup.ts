/**
 * HTML that is escaped by construction: strings are always text, and only `Markup` is taken as it
 * is. Names in a report come from files of strangers, so nothing else may make markup.
 */
export class Markup {
  private constructor(readonly html: string) {}

  /** Markup that this program wrote itself. Never call it with text that came from a file. */
  static trusted(html: string): Markup {
    return new Markup(html);
  }
}

export type Child = Markup | string | number | readonly Child[];
type Attributes = Readonly<Record<string, string | number | boolean>>;

const VOID = new Set(['meta', 'br', 'hr', 'img', 'input', 'col', 'wbr']);

/**
 * An element. Attribute values are escaped; `true` writes the bare attribute, `false` leaves it
 * out.
 */
export function h(tag: string, attributes: Attributes, ...children: readonly Child[]): Markup {
  const written = Object.entries(attributes)
    .filter(([, value]) => value !== false)
    .map(([name, value]) =>
      value === true ? ` ${name}` : ` ${name}="${escapeHtml(String(value))}"`,
    )
    .join('');
  if (VOID.has(tag)) return Markup.trusted(`<${tag}${written}>`);
  return Markup.trusted(`<${tag}${written}>${render(children)}</${tag}>`);
}

/** Children one after another. */
export function render(child: Child): string {
  if (child instanceof Markup) return child.html;
  if (typeof child === 'string') return escapeHtml(child);
  if (typeof child === 'number') return String(child);
  return child.map(render).join('');
}

const ENTITIES: ReadonlyMap<string, string> = new Map([
  ['&', '&amp;'],
  ['<', '&lt;'],
  ['>', '&gt;'],
  ['"', '&quot;'],
  ["'", '&#39;'],
]);

/**
 * Text inside HTML. Control characters, and marks that turn the direction of text around, become
 * the replacement character.
 */
function escapeHtml(text: string): string {
  return text
    .replace(
      /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufffe\uffff]/g,
      '\ufffd',
    )
    .replace(/[&<>"']/g, (c) => ENTITIES.get(c) ?? c);
}

/**
 * JSON that is safe inside a script element: it has no `<`, and no line separators, on which old
 * parsers fail.
 */
export function scriptJson(value: unknown): string {
  return JSON.stringify(value)
    .replaceAll('<', '\\u003c')
    .replaceAll('\u2028', '\\u2028')
    .replaceAll('\u2029', '\\u2029');
}
