/**
 * The editor of a traced program (CodeMirror 6). It reports changes of its text and shows findings
 * at their lines.
 */
import { javascript } from '@codemirror/lang-javascript';
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { type Diagnostic, setDiagnostics } from '@codemirror/lint';
import { EditorView } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { basicSetup } from 'codemirror';

import type { Finding } from '../protocol.ts';

/** Colours of the report, so that contrast holds in light and dark. */
const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword], color: 'var(--accent)' },
  { tag: [tags.string, tags.regexp], color: 'var(--good)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--communication)' },
  { tag: tags.comment, color: 'var(--soft)', fontStyle: 'italic' },
  { tag: [tags.typeName, tags.className], color: 'var(--good)' },
]);

const LOOK = EditorView.theme({
  '&': { color: 'var(--ink)', backgroundColor: 'var(--page)', maxHeight: '560px' },
  '.cm-scroller': {
    fontFamily: "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace",
  },
  '.cm-gutters': {
    backgroundColor: 'var(--raised)',
    color: 'var(--soft)',
    borderRight: '1px solid var(--border)',
  },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'transparent' },
  '.cm-content': { caretColor: 'var(--ink)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-tooltip': {
    backgroundColor: 'var(--raised)',
    color: 'var(--ink)',
    border: '1px solid var(--border)',
  },
});

export interface Editor {
  text: string;
  readonly show: (findings: readonly Finding[]) => void;
}

export function openEditor(parent: HTMLElement, start: string, changed: () => void): Editor {
  const view = new EditorView({
    parent,
    doc: start,
    extensions: [
      basicSetup,
      javascript({ typescript: true }),
      syntaxHighlighting(COLOURS),
      LOOK,
      EditorView.contentAttributes.of({ 'aria-label': 'Program in TypeScript' }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) changed();
      }),
    ],
  });
  // What scrolls must be reached by keyboard.
  view.scrollDOM.tabIndex = 0;
  return {
    get text() {
      return view.state.doc.toString();
    },
    set text(text) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    show: (findings) => {
      const { doc } = view.state;
      const diagnostics = findings.map(({ line, column, length, message }): Diagnostic => {
        const row = doc.line(Math.min(Math.max(1, line), doc.lines));
        const from = Math.min(row.from + column - 1, row.to);
        return { from, to: Math.min(from + length, doc.length), severity: 'error', message };
      });
      view.dispatch(setDiagnostics(view.state, diagnostics));
    },
  };
}
