/** Elements of the document by their id, of a stated kind. */

/** @throws where the document has no such element */
export function byId<T extends HTMLElement>(id: string, kind: abstract new () => T): T {
  const element = document.getElementById(id);
  if (element instanceof kind) return element;
  throw new Error(`internal: the page has no ${kind.name} '${id}'`);
}

export const input = (id: string): HTMLInputElement => byId(id, HTMLInputElement);
export const select = (id: string): HTMLSelectElement => byId(id, HTMLSelectElement);
export const textArea = (id: string): HTMLTextAreaElement => byId(id, HTMLTextAreaElement);
export const link = (id: string): HTMLAnchorElement => byId(id, HTMLAnchorElement);
export const button = (id: string): HTMLButtonElement => byId(id, HTMLButtonElement);

/** Fills a list or a choice with options; an empty one is the default. */
export function fill(of: HTMLElement, values: readonly string[]): void {
  of.replaceChildren(
    ...values.map((value) => {
      const option = document.createElement('option');
      option.value = value;
      if (of instanceof HTMLSelectElement) option.textContent = value === '' ? 'default' : value;
      return option;
    }),
  );
}

/** Calls `run` once nothing has asked for it for so many milliseconds. */
export function settled(milliseconds: number, run: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, milliseconds);
  };
}

/** A button with a short text and a name that says all. */
export function small(text: string, name: string, run: () => void): HTMLButtonElement {
  const made = document.createElement('button');
  made.type = 'button';
  made.textContent = text;
  made.setAttribute('aria-label', name);
  made.addEventListener('click', run);
  return made;
}
