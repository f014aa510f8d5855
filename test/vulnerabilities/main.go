// Command vulnerabilities runs govulncheck where its database can be reached. Where it
// cannot, it says so and succeeds: a machine without a way out cannot know what is known.
// A known vulnerability that our programs call makes it fail.
//
//	vulnerabilities PATH/govulncheck ./cmd/...
//
// Of the environment it takes GOVULNDB, as govulncheck does: the database's URL.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	defaultDatabase = "https://vuln.go.dev"
	// indexPath is what every database has (https://go.dev/doc/security/vuln/database).
	indexPath = "/index/db.json"
	// reachTimeout bounds how long the database may take to answer at all.
	reachTimeout = 20 * time.Second
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Getenv("GOVULNDB"), os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "vulnerabilities:", err)
		os.Exit(1)
	}
}

// run runs args, which are govulncheck and its packages, with that database; empty means
// the Go project's.
func run(ctx context.Context, args []string, database string, out, complaints io.Writer) error {
	if len(args) < 2 {
		return errors.New("usage: vulnerabilities GOVULNCHECK PACKAGES")
	}
	database = cmp.Or(database, defaultDatabase)
	if err := reach(ctx, database); err != nil {
		_, err = fmt.Fprintf(out, "skipped: database not reachable: %v\n", err)
		return err
	}
	check := exec.CommandContext(ctx, args[0], append([]string{"-db", database}, args[1:]...)...) //nolint:gosec // what the Makefile names
	check.Stdout, check.Stderr = out, complaints
	if err := check.Run(); err != nil {
		return fmt.Errorf("govulncheck: %w", err)
	}
	return nil
}

// reach says why the database cannot be asked; nil when it can. A database of files needs
// no network, and govulncheck itself says what it lacks.
func reach(ctx context.Context, database string) error {
	u, err := url.Parse(database)
	if err != nil {
		return err
	}
	if u.Scheme == "file" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(database, "/")+indexPath, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}
