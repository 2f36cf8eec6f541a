// Fields of forms.

import type { ComponentProps, ReactNode } from 'react';

import styles from './Field.module.css';

interface Labelled {
  label: string;
  name: string;
}

export function TextField({ label, ...input }: Labelled & ComponentProps<'input'>) {
  return (
    <label className={styles.field}>
      <span>{label}</span>
      <input spellCheck={false} autoComplete="off" {...input} />
    </label>
  );
}

export function AreaField({ label, ...area }: Labelled & ComponentProps<'textarea'>) {
  return (
    <label className={styles.field}>
      <span>{label}</span>
      <textarea rows={3} spellCheck={false} {...area} />
    </label>
  );
}

interface SelectProps extends Labelled, Omit<ComponentProps<'select'>, 'name'> {
  /** The value of each choice, its text, and whether it cannot be chosen. */
  choices: Readonly<Record<string, string>> | readonly Choice[];
}

type Choice = readonly [string, string, boolean?];

export function SelectField({ label, choices, ...select }: SelectProps) {
  const all: readonly Choice[] = Array.isArray(choices) ? (choices as readonly Choice[]) : Object.entries(choices);
  return (
    <label className={styles.field}>
      <span>{label}</span>
      <select {...select}>
        {all.map(([value, text, isDisabled]) => (
          <option key={value} value={value} disabled={isDisabled}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

export function CheckField({ label, ...input }: Labelled & ComponentProps<'input'>) {
  return (
    <label className={styles.check}>
      <input type="checkbox" {...input} />
      <span>{label}</span>
    </label>
  );
}

/** Fields beside each other, if there is space. */
export function Row({ children }: { children: ReactNode }) {
  return <div className={styles.row}>{children}</div>;
}
