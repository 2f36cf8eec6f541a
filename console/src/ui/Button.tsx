// Buttons. One that may not be used stays visible and focusable, and says why.

import { useId, type ReactNode } from 'react';

import styles from './Button.module.css';

interface Props {
  children: ReactNode;
  onPress?: () => void;
  /** Why the button cannot be used, such as the role that it needs. */
  disabledReason?: string | undefined;
  label?: string | undefined;
  kind?: 'plain' | 'primary' | 'icon';
  /** Whether it sends the form that it is in. */
  isSubmit?: boolean;
  /** Set in rows of a grid, which are left with Tab only from the current row. There, the reason is a title: rows clip. */
  isInCurrentRow?: boolean | undefined;
}

export function Button(props: Props) {
  const { children, onPress, disabledReason, label, kind = 'plain', isSubmit = false, isInCurrentRow } = props;
  const reason = useId();
  const isDisabled = disabledReason !== undefined;
  return (
    <span className={styles.place}>
      <button
        type={isSubmit ? 'submit' : 'button'}
        className={`${styles.button} ${styles[kind]}`}
        aria-label={label}
        tabIndex={isInCurrentRow === false ? -1 : undefined}
        title={isInCurrentRow === undefined ? undefined : disabledReason}
        aria-disabled={isDisabled || undefined}
        aria-describedby={isDisabled ? reason : undefined}
        onClick={(event) => {
          if (isDisabled) event.preventDefault();
          else onPress?.();
        }}
      >
        {children}
      </button>
      {isDisabled && (
        <span id={reason} role="tooltip" className={styles.reason}>
          {disabledReason}
        </span>
      )}
    </span>
  );
}
