package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/identity/inspect"
)

type showCommand struct {
	std    streams
	conn   *connection
	output *output
	local  localIdentity
}

func newShowCommand(std streams, conn *connection) *cobra.Command {
	c := &showCommand{std: std, conn: conn, output: newOutput("wide", "json", "yaml")}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show what the local Workload API hands out",
		Long: "Show which SVIDs, hints, bundles and federated trust domains the Workload API of this\n" +
			"machine hands out to this process, and for how long. Keys and tokens are not shown.\n\n" +
			"The SPIRE agent decides by who asks: to see what a principal or agent gets, run it where\n" +
			"that runs, as the same user.\n\n" +
			"With --hub the Agents of the hub say whose each SVID is. With --principal the principal is\n" +
			"dialled, which needs no rights on the hub, and says as which agent it would accept this\n" +
			"identity; it logs one refused connection.",
		Example: "  agentctl identity show --socket unix:///tmp/spire-agent/public/api.sock\n" +
			"  agentctl identity show --principal principal.hub.example:8443 -o yaml",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.output.addFlag(cmd)
	c.local.addFlags(cmd)
	return cmd
}

func (c *showCommand) run(ctx context.Context) error {
	s, err := c.local.look(ctx, c.conn)
	if err != nil {
		return explainAsk(err)
	}
	if !c.output.isTable() {
		return c.output.structured(c.std.out, s)
	}
	return printSight(c.std.out, s, c.output.value == "wide")
}

// explainAsk adds the cure to an error of the Workload API.
func explainAsk(err error) error {
	if cure := inspect.Cure(err); cure != "" {
		return fmt.Errorf("%s: %s", oneLine(err), cure)
	}
	return err
}

func printSight(w io.Writer, s sight, wide bool) error {
	tabs := newTable(w, wide)
	tabs.row([]string{"SVID", "HINT", "VALID FOR"}, "NOT AFTER", "KEY", "CHAIN", "DNS NAMES", "ISSUER")
	for _, v := range s.SVIDs {
		tabs.row([]string{v.SPIFFEID, v.Hint, until(s.Asked, v.NotAfter)},
			v.NotAfter.UTC().Format(timeLayout), v.Key, fmt.Sprint(v.Chain), strings.Join(v.DNSNames, ","), v.Issuer)
	}
	tabs.section()
	tabs.row([]string{"TRUST DOMAIN", "KIND", "ROOTS", "JWT KEYS"}, "ROOTS UNTIL", "JWT KEY IDS")
	for _, b := range s.Bundles {
		kind := "federated"
		if b.Own {
			kind = "own"
		}
		var untils []string
		for _, root := range b.Roots {
			untils = append(untils, root.NotAfter.UTC().Format(timeLayout))
		}
		tabs.row([]string{b.TrustDomain, kind, fmt.Sprint(len(b.Roots)), fmt.Sprint(len(b.JWTKeys))}, strings.Join(untils, ","), strings.Join(b.JWTKeys, ","))
	}
	if len(s.JWTSVIDs) > 0 {
		tabs.section()
		tabs.row([]string{"JWT-SVID", "HINT", "AUDIENCE", "VALID FOR"})
		for _, j := range s.JWTSVIDs {
			tabs.row([]string{j.SPIFFEID, j.Hint, strings.Join(j.Audience, ","), until(s.Asked, j.Expires)})
		}
	}
	if len(s.Registry) > 0 {
		tabs.section()
		tabs.row([]string{"SVID", "AGENT ON THE HUB", "WHY NOT"})
		for _, v := range s.Registry {
			tabs.row([]string{v.SPIFFEID, v.Agent, v.Refused})
		}
	}
	if p := s.Principal; p != nil {
		tabs.section()
		tabs.row([]string{"PRINCIPAL", "SPIFFE ID", "HANDSHAKE", "REGISTERED", "AGENT", "MODE", "WHY NOT"})
		tabs.row([]string{p.Address, p.SPIFFEID, fmt.Sprint(p.Handshake), fmt.Sprint(p.Registered), p.Agent, p.Mode, p.Problem})
	}
	if err := tabs.flush(); err != nil {
		return err
	}
	for _, problem := range []string{s.JWTBundlesError, s.JWTSVIDsError} {
		if problem != "" {
			if _, err := fmt.Fprintf(w, "\nJWT: %s\n", problem); err != nil {
				return err
			}
		}
	}
	return nil
}

// until says how long it is from one time to another, for a person.
func until(from, to time.Time) string {
	d := to.Sub(from).Round(time.Second)
	if d <= 0 {
		return "expired"
	}
	return d.String()
}

// timeLayout is how times are shown.
const timeLayout = "2006-01-02T15:04:05Z"
