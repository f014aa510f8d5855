//go:build unix

// Command source lays out the source of one commit of another project, which no module
// proxy has: from an archive that is there, or else from an address. What it holds is
// checked by a sum over names and contents, since an address may compress the same files
// in another way the next time.
//
//	go run ./test/tools/source -url URL -sum SUM -to FOLDER
//	go run ./test/tools/source -archive FILE -sum SUM -to FOLDER
//
// The archive is a tar file, compressed by gzip, with all files in one folder. FOLDER must
// not exist; after a failure it does not.
package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := untilSignal(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func untilSignal(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, args)
}

// What an address gets to answer, and to have sent everything.
const (
	answerTime = 10 * time.Second
	wholeTime  = 5 * time.Minute
)

// maxSource is the most that an archive may hold, in bytes.
const maxSource = 64 << 20

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("source", flag.ContinueOnError)
	url := flags.String("url", "", "`address` of the archive")
	archive := flags.String("archive", "", "`file` to take instead")
	sum := flags.String("sum", "", "what must be in it")
	to := flags.String("to", "", "`folder` to make")
	if err := flags.Parse(args); err != nil {
		return err
	}
	from, err := open(ctx, *archive, *url, answerTime)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // only read from
	if err := layOut(from, *sum, *to); err != nil {
		return fmt.Errorf("%s: %w", cmp.Or(*archive, *url), err)
	}
	return nil
}

// open gives an address that long to begin its answer.
func open(ctx context.Context, archive, url string, patience time.Duration) (io.ReadCloser, error) {
	if archive != "" {
		return os.Open(archive)
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	timer := time.AfterFunc(patience, func() { giveUp(fmt.Errorf("no answer within %s", patience)) })
	defer timer.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		giveUp(err)
		return nil, err
	}
	response, err := (&http.Client{Timeout: wholeTime}).Do(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%s: %w", url, cause)
		}
		giveUp(err)
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		giveUp(nil)
		return nil, errors.Join(fmt.Errorf("%s: %s", url, response.Status), response.Body.Close())
	}
	return &body{response.Body, giveUp}, nil
}

// body ends its request when it is closed.
type body struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close ends the request, too.
func (b *body) Close() error {
	defer b.end(nil)
	return b.ReadCloser.Close()
}

// layOut writes what an archive holds below the folder that all of it is in.
func layOut(archive io.Reader, want, to string) (err error) {
	unpacked, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(to))
		}
	}()
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written through it any more
	sums, err := unpack(tar.NewReader(io.LimitReader(unpacked, maxSource)), root)
	if err != nil {
		return err
	}
	if got := sumOf(sums); got != want {
		return fmt.Errorf("it holds something else: its sum is %s, not %s", got, want)
	}
	return nil
}

// unpack returns the sum of each file, by its path below the archive's one folder. It
// writes regular files and folders alone, none outside of root.
func unpack(archive *tar.Reader, root *os.Root) (map[string]string, error) {
	sums := make(map[string]string)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return sums, nil
		}
		if err != nil {
			return nil, err
		}
		_, name, below := strings.Cut(path.Clean(header.Name), "/")
		if !below || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return nil, err
		}
		file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(io.MultiWriter(file, h), archive)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		sums[name] = hex.EncodeToString(h.Sum(nil))
	}
}

// sumOf is over the names and sums of all files.
func sumOf(sums map[string]string) string {
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		_, _ = fmt.Fprintf(h, "%s  %q\n", sums[name], name) // a hash never fails to write
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
