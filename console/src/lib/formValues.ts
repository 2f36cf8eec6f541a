// Reads the fields of a form that is sent.

import { notSent } from '../api/problem';
import { words } from '../words';
import { seconds } from './duration';

export class FormValues {
  readonly #data: FormData;

  constructor(form: HTMLFormElement) {
    this.#data = new FormData(form);
  }

  /** Returns a text without surrounding spaces; absent if it is empty. */
  text(name: string): string | undefined {
    const value = this.#data.get(name);
    return (typeof value === 'string' && value.trim()) || undefined;
  }

  isChecked(name: string): boolean {
    return this.#data.get(name) !== null;
  }

  whole(name: string): number | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : Number(text);
  }

  /** Returns the lines of a text. Commas separate only where they cannot be part of an item. */
  lines(name: string, separator: RegExp = /\n/): string[] {
    const parts = (this.text(name) ?? '').split(separator);
    return parts.map((part) => part.trim()).filter((part) => part !== '');
  }

  /** Returns a duration in seconds; throws if the text is none. */
  duration(name: string): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const read = seconds(text);
    if (read === undefined) throw notSent(words.acts.badDuration(text));
    return read;
  }

  /** Returns labels such as `env=prod, region=eu`; throws if one has no `=`. */
  labels(name: string): Record<string, string> {
    const pairs = this.lines(name, /[\n,]/).map((pair): [string, string] => {
      const at = pair.indexOf('=');
      if (at < 1) throw notSent(words.acts.badLabel(pair));
      return [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
    });
    return Object.fromEntries(pairs);
  }
}
