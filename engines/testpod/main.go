// The program of test Pods: it serves, crashes, hangs, takes its time or ignores SIGTERM, as its flags say. Without flags it
// sleeps until SIGTERM, which is all that the sandbox container of a Pod has to do.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var (
	say        = flag.String("say", "", "print this line first")
	get        = flag.String("get", "", "get this URL, and exit with 1 unless it answers 200")
	serve      = flag.String("serve", "", "serve HTTP on this address: / always answers 200, /ready when it is ready")
	readyAfter = flag.Duration("ready-after", 0, "be ready after this time; negative: never")
	after      = flag.Duration("after", 0, "wait this long before exiting or allocating")
	exit       = flag.Int("exit", -1, "exit with this code")
	memory     = flag.Int("memory", 0, "allocate this many MiB")
	ignoreTerm = flag.Bool("ignore-term", false, "ignore SIGTERM")
)

func main() {
	flag.Parse()
	started := time.Now()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	if *say != "" {
		fmt.Println(*say)
	}
	if *get != "" {
		fetch(*get)
	}
	if *serve != "" {
		go listen(started)
	}
	select {
	case <-time.After(*after):
	case <-ends(term):
		return
	}
	if *memory > 0 {
		allocate(*memory)
	}
	if *exit >= 0 {
		os.Exit(*exit)
	}
	<-ends(term)
}

func ends(term chan os.Signal) chan os.Signal {
	if *ignoreTerm {
		return nil
	}
	return term
}

func fetch(url string) {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(url)
	if err != nil || answer.StatusCode != http.StatusOK {
		fmt.Fprintln(os.Stderr, "failed to get", url, answer, err)
		os.Exit(1)
	}
	fmt.Println("got", url)
}

func listen(started time.Time) {
	http.HandleFunc("/", func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, "ok") })
	http.HandleFunc("/ready", func(writer http.ResponseWriter, _ *http.Request) {
		if *readyAfter < 0 || time.Since(started) < *readyAfter {
			http.Error(writer, "not ready", http.StatusServiceUnavailable)
		}
	})
	if err := http.ListenAndServe(*serve, nil); err != nil {
		fmt.Fprintln(os.Stderr, "failed to serve:", err)
		os.Exit(2)
	}
}

// allocate touches every page, so that the memory is really used.
func allocate(mebibytes int) {
	kept := make([][]byte, 0, mebibytes)
	for range mebibytes {
		block := make([]byte, 1<<20)
		for at := 0; at < len(block); at += 4096 {
			block[at] = 1
		}
		kept = append(kept, block)
	}
	fmt.Println("allocated", len(kept), "MiB")
}
