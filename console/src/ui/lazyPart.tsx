// Parts of a page that are loaded when they are shown.

import { Component, lazy, Suspense, useState, type ComponentType, type ReactNode } from 'react';

import { asApiError } from '../api/problem';
import { loading } from '../lib/load';
import { Problem } from './Problem';

/** Returns a component that loads a part. If that fails, only the part says so, and it can be loaded again. */
export function lazyPart<P extends object>(load: () => Promise<{ default: ComponentType<P> }>, fallback: ReactNode = <span hidden aria-busy="true" />) {
  // Shared, so that what was loaded is shown at once the next time.
  let shared = lazy(loading(load));
  return function Part(props: P) {
    const [Loading, setLoading] = useState(() => shared);
    const [attempt, setAttempt] = useState(0);
    const retry = () => {
      shared = lazy(loading(load));
      setLoading(() => shared);
      setAttempt(attempt + 1);
    };
    return (
      <PartBoundary key={attempt} onRetry={retry}>
        <Suspense fallback={fallback}>
          <Loading {...props} />
        </Suspense>
      </PartBoundary>
    );
  };
}

interface BoundaryProps {
  onRetry: () => void;
  children: ReactNode;
}

class PartBoundary extends Component<BoundaryProps, { error: unknown }> {
  override state = { error: undefined };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    // After an upgrade of the broker, files of the former version are gone.
    const reload = () => globalThis.location.reload();
    return <Problem error={error} onRetry={asApiError(error).isTransient ? this.props.onRetry : reload} />;
  }
}
