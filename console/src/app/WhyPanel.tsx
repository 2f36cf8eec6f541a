// Explains a stack on an agent beside the page.

import { Link } from '@tanstack/react-router';
import { X } from 'lucide-react';
import { useEffect, useRef } from 'react';

import { useShortcuts } from '../lib/keys';
import { views } from '../lib/views';
import { Button } from '../ui/Button';
import CopyMenu from '../ui/CopyMenu';
import { words } from '../words';
import { Why } from '../pages/why/Why';
import styles from './WhyPanel.module.css';

interface Props {
  stack: string;
  agent: string;
  onClose: () => void;
}

export default function WhyPanel({ stack, agent, onClose }: Props) {
  const panel = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    panel.current?.focus();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  useShortcuts([{ keys: 'Escape', label: words.keys.close, run: onClose }]);
  return (
    <aside ref={panel} tabIndex={-1} aria-label={words.why.page} className={styles.panel}>
      <div className={styles.bar}>
        <Link to="/stacks/$stack/agents/$agent" params={{ stack, agent }}>
          {words.why.openPage}
        </Link>
        <span className={styles.space} />
        <CopyMenu view={views.why(stack, agent)} />
        <Button kind="icon" label={words.why.close} onPress={onClose}>
          <X size={16} aria-hidden />
        </Button>
      </div>
      <Why stack={stack} agent={agent} />
    </aside>
  );
}
