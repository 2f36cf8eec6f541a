// A dialog above the page. React Aria keeps the focus inside and returns it afterwards.

import type { ReactNode } from 'react';
import { Dialog, Heading, Modal, ModalOverlay } from 'react-aria-components';

import styles from './Overlay.module.css';

interface Props {
  title: string;
  onClose: () => void;
  /** Whether only a button closes it: it shows something that is not shown again. */
  mustClose?: boolean;
  children: ReactNode;
}

export function Overlay({ title, onClose, mustClose = false, children }: Props) {
  return (
    <ModalOverlay
      isOpen
      isDismissable={!mustClose}
      isKeyboardDismissDisabled={mustClose}
      onOpenChange={onClose}
      className={styles.scrim ?? ''}
    >
      <Modal className={styles.modal ?? ''}>
        <Dialog className={styles.dialog ?? ''}>
          <Heading slot="title" level={2}>
            {title}
          </Heading>
          {children}
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
