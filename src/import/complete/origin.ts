/**
 * Finds the place of a node in the user's program from the metadata that torch's exporters write as
 * text.
 */

/** `key,fqn,class` entries joined by `;`, the deepest last; the root has an empty name. */
export function modulePath(stack: string): string | undefined {
  const deepest = stack.slice(stack.lastIndexOf(';') + 1).split(',');
  return deepest.length >= 3 && deepest[1] !== '' ? deepest[1] : undefined;
}

/**
 * `file:line` of the innermost frame that is a file; frames of generated code only where there is
 * no other.
 */
export function sourcePosition(trace: string): string | undefined {
  let found: string | undefined;
  let generated: string | undefined;
  for (const [, file = '', line] of trace.matchAll(
    /^ *File "([^"\n]{1,4096})", line (\d{1,9}), in /gm,
  )) {
    if (file.startsWith('<')) generated = `${file}:${line}`;
    else found = `${file}:${line}`;
  }
  return found ?? generated;
}
