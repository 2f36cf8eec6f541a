// An act: a button that names the role it needs, and a dialog that says what it reaches before it is confirmed.

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Component, Suspense, useEffect, useLayoutEffect, useRef, useState, type FormEvent, type ReactNode } from 'react';

import { asApiError } from '../api/problem';
import { includes, sessionQuery } from '../api/session';
import type { Role } from '../api/types';
import { forgetKeys } from '../api/writes';
import { Overlay } from '../app/Overlay';
import { FormValues } from '../lib/formValues';
import { number } from '../lib/format';
import { words } from '../words';
import styles from './Act.module.css';
import { announce } from './announce';
import { Button } from './Button';
import { Command } from './Copy';
import { TextField } from './Field';
import { Problem } from './Problem';

const say = words.acts;
/** Longer than a dialog takes to return the focus. */
const RETURN_MS = 100;

/** Returns why the signed-in token may not do what needs a role; nothing if it may. */
export function useReasonAgainst(): (role: Role) => string | undefined {
  const { data: session } = useQuery(sessionQuery);
  return (role) => (session && includes(session.role, role) ? undefined : words.roles.needs(role));
}

interface ActButtonProps {
  name: string;
  needs: Role;
  /** Why the act is not possible now, whatever the role. */
  disabledReason?: string | undefined;
  /** What screen readers say, if there are several buttons with the same name. */
  label?: string | undefined;
  kind?: 'plain' | 'primary';
  isInCurrentRow?: boolean | undefined;
  /** Renders the dialog when it is opened. It stays as it is then: what is confirmed is what was shown. */
  children: (close: () => void) => ReactNode;
}

export function ActButton(props: ActButtonProps) {
  const { name, needs, disabledReason, label, kind, isInCurrentRow, children } = props;
  const [dialog, setDialog] = useState<ReactNode>();
  const close = () => setDialog(undefined);
  const reasonAgainst = useReasonAgainst();
  const place = useRef<HTMLSpanElement>(null);
  const wasOpened = useRef(false);
  useLayoutEffect(() => {
    const element = place.current;
    // What is done may not be possible again: the focus of a button that goes away needs another place.
    return () => {
      const hadFocus = element?.contains(document.activeElement) ?? false;
      if (!hadFocus && !wasOpened.current) return;
      // A test may take the global one away before the time is over.
      const page = document;
      // The dialog may be about to return the focus to the button.
      setTimeout(() => {
        const isLost = page.activeElement === null || page.activeElement === page.body;
        if (isLost) page.querySelector<HTMLElement>('main h1')?.focus();
      }, RETURN_MS);
    };
  }, []);
  return (
    <span ref={place} className={styles.place}>
      <Button
        onPress={() => {
          wasOpened.current = true;
          setDialog(children(close));
        }}
        disabledReason={reasonAgainst(needs) ?? disabledReason}
        label={label}
        isInCurrentRow={isInCurrentRow}
        {...(kind && { kind })}
      >
        {name}
      </Button>
      {dialog !== undefined && (
        <Boundary title={name} onClose={close}>
          <Suspense>{dialog}</Suspense>
        </Boundary>
      )}
    </span>
  );
}

interface BoundaryProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
}

/** Shows why a dialog could not be loaded, and leaves the page as it is. */
class Boundary extends Component<BoundaryProps, { error: unknown }> {
  override state = { error: undefined };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    const { title, onClose, children } = this.props;
    if (this.state.error === undefined) return children;
    return (
      <Overlay title={title} onClose={onClose}>
        <Problem error={this.state.error} onRetry={() => globalThis.location.reload()} />
      </Overlay>
    );
  }
}

interface ActDialogProps<T> {
  title: string;
  /** The name of the button that does it. */
  submit: string;
  onClose: () => void;
  /** Does it. `expect` is the number that the broker asked to confirm. */
  run: (values: FormValues, expect: number | undefined) => Promise<T>;
  /** What is announced when it is done. */
  announced: string;
  /** What is shown when it is done; without, the dialog closes. */
  renderResult?: (done: T) => ReactNode;
  /** A secret that is shown when it is done, and not again. */
  secretOf?: (done: T) => string;
  /** What has to be typed before. */
  typed?: string | undefined;
  disabledReason?: string | undefined;
  children?: ReactNode;
}

export function ActDialog<T>(props: ActDialogProps<T>) {
  const { title, submit, onClose, run, announced, renderResult, secretOf, typed, children } = props;
  const hasResult = renderResult !== undefined || secretOf !== undefined;
  const [text, setText] = useState('');
  const queries = useQueryClient();
  // A dialog that is opened again does a new act, even if the first one had no response.
  useEffect(() => forgetKeys, []);
  const { mutate, reset, data, error, isPending, isSuccess } = useMutation({
    mutationFn: async ({ values, expect }: { values: FormValues; expect: number | undefined }) => run(values, expect),
    onSuccess: () => {
      announce(announced);
      // What an act changes is seen in counts, lists and explanations: everything on the screen is read again.
      void queries.invalidateQueries();
      if (!hasResult) onClose();
    },
  });
  if (isSuccess && hasResult) {
    return (
      <Overlay title={title} onClose={onClose} mustClose={secretOf !== undefined}>
        <div className={styles.form}>
          {renderResult?.(data)}
          {secretOf && <Secret value={secretOf(data)} />}
          <div className={styles.buttons}>
            <Button kind="primary" onPress={onClose}>
              {say.close}
            </Button>
          </div>
        </div>
      </Overlay>
    );
  }
  const expect = error === null ? undefined : asApiError(error).expect;
  const isTyped = typed === undefined || text.trim() === typed;
  const reason = isPending ? say.pending : (props.disabledReason ?? (isTyped ? undefined : say.typeFirst(typed)));
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (reason !== undefined) return;
    const values = new FormValues(event.currentTarget);
    mutate({ values, expect });
  };
  // The number that the broker asked to confirm is that of what was sent, not of what is entered now.
  const onInput = () => {
    if (error !== null) reset();
  };
  return (
    <Overlay title={title} onClose={onClose} mustClose={isPending}>
      <form className={styles.form} onSubmit={onSubmit} onInput={onInput}>
        {children}
        {typed !== undefined && (
          <TextField
            label={say.type(typed)}
            name="typed"
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        )}
        {error !== null && <Problem error={error} />}
        <div className={styles.buttons}>
          <Button kind="primary" isSubmit disabledReason={reason}>
            {expect === undefined ? submit : say.expect(submit, number(expect))}
          </Button>
          <Button onPress={onClose} disabledReason={isPending ? say.pending : undefined}>
            {say.cancel}
          </Button>
        </div>
      </form>
    </Overlay>
  );
}

/** Part of a dialog. */
export function Part({ children }: { children: ReactNode }) {
  return <div className={styles.part}>{children}</div>;
}

export function Warning({ children }: { children: ReactNode }) {
  return <p className={styles.warning}>{children}</p>;
}

function Secret({ value }: { value: string }) {
  return (
    <>
      <Warning>{say.once}</Warning>
      <Command line={value} name={say.secret} />
    </>
  );
}
