// The filters of a list. They are part of the address, so that a link shows the same rows.

import { useNavigate } from '@tanstack/react-router';
import { useEffect, useRef, type FormEvent } from 'react';

import { useShortcuts } from '../lib/keys';
import { words } from '../words';
import { Button } from './Button';
import styles from './Filters.module.css';

interface TextFilter {
  kind: 'text';
  name: string;
  label: string;
  hint?: string;
  value: string | undefined;
}

interface ChoiceFilter {
  kind: 'choice';
  name: string;
  label: string;
  choices: Readonly<Record<string, string>>;
  /** What no choice means. */
  none?: string;
  value: string | undefined;
}

type Filter = TextFilter | ChoiceFilter;

export function Filters({ filters }: { filters: readonly Filter[] }) {
  const form = useRef<HTMLFormElement>(null);
  const navigate = useNavigate();
  const set = (values: Record<string, string | undefined>) =>
    void navigate({ to: '.', search: ((before: object) => ({ ...before, ...values })) as never, replace: true });
  const apply = (event?: FormEvent) => {
    event?.preventDefault();
    const read = new FormData(form.current ?? undefined);
    set(Object.fromEntries(filters.map(({ name }) => [name, (read.get(name) as string).trim() || undefined])));
  };
  const isFiltered = filters.some(({ value }) => value !== undefined);
  useShortcuts([
    { keys: '/', label: words.keys.filter, run: () => form.current?.querySelector<HTMLElement>('input, select')?.focus() },
  ]);
  const clear = () => {
    set(Object.fromEntries(filters.map(({ name }) => [name, undefined])));
    // The button goes away, so the focus needs another place.
    form.current?.querySelector<HTMLElement>('input, select')?.focus();
  };
  // A change from elsewhere, such as the back button, changes the fields; they stay the same elements and keep the focus.
  const values = JSON.stringify(filters.map(({ name, value }) => [name, value ?? '']));
  useEffect(() => {
    for (const [name, value] of JSON.parse(values) as [string, string][]) {
      const field = form.current?.elements.namedItem(name);
      if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement) field.value = value;
    }
  }, [values]);
  return (
    <form ref={form} role="search" aria-label={words.filters.label} className={styles.filters} onSubmit={apply}>
      {filters.map((filter) => (
        <label key={filter.name} className={styles.filter}>
          <span>{filter.label}</span>
          {filter.kind === 'text' ? (
            <input name={filter.name} defaultValue={filter.value ?? ''} placeholder={filter.hint} spellCheck={false} />
          ) : (
            <select name={filter.name} defaultValue={filter.value ?? ''} onChange={() => apply()}>
              <option value="">{filter.none ?? words.list.any}</option>
              {Object.entries(filter.choices).map(([value, text]) => (
                <option key={value} value={value}>
                  {text}
                </option>
              ))}
            </select>
          )}
        </label>
      ))}
      <button type="submit" className={styles.apply}>
        {words.list.apply}
      </button>
      {isFiltered && (
        <Button onPress={clear}>{words.list.clear}</Button>
      )}
    </form>
  );
}
