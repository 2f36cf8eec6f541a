// Copying: buttons that copy a text, and a command line with one.

import { Check, Copy as CopyIcon, X } from 'lucide-react';
import { useState } from 'react';

import { words } from '../words';
import { Button } from './Button';
import styles from './Copy.module.css';
import { announce } from './announce';

const SHOWN_MS = 2_000;

/** Returns whether the browser has copied the text: it may refuse, and offers no clipboard on plain HTTP. */
async function write(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

type Outcome = 'done' | 'failed';

/** Returns what came of copying a moment ago, and a function that copies a text. */
export function useCopy(): [Outcome | undefined, (text: string) => void] {
  const [outcome, setOutcome] = useState<Outcome>();
  const copy = (text: string) => {
    void write(text).then((isCopied) => {
      const then = isCopied ? 'done' : 'failed';
      setOutcome(then);
      announce(words.copy[then]);
      setTimeout(() => setOutcome(undefined), SHOWN_MS);
    });
  };
  return [outcome, copy];
}

const ICONS = { done: Check, failed: X } as const;

export function CopyMark({ outcome }: { outcome: Outcome | undefined }) {
  const Icon = outcome === undefined ? CopyIcon : ICONS[outcome];
  return <Icon size={16} aria-hidden />;
}

/** A button that copies a longer text, such as an explanation for a chat. */
export function CopyButton({ label, text }: { label: string; text: () => string }) {
  const [outcome, copy] = useCopy();
  return <Button onPress={() => copy(text())}>{outcome === undefined ? label : words.copy[outcome]}</Button>;
}

/** A command to type, with a button that copies it. */
export function Command({ line, name = line }: { line: string; name?: string }) {
  const [outcome, copy] = useCopy();
  return (
    <div className={styles.command}>
      <pre>{line}</pre>
      <Button kind="icon" label={words.copy.value(name)} onPress={() => copy(line)}>
        <CopyMark outcome={outcome} />
      </Button>
    </div>
  );
}
