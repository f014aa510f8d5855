package identities

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
)

type showCommand struct {
	std    cli.Streams
	conn   *cli.Connection
	output *cli.Output
	local  localIdentity
}

func newShowCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &showCommand{std: std, conn: conn, output: cli.NewOutput("wide", "json", "yaml")}
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
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.output.AddFlag(cmd)
	c.local.addFlags(cmd)
	return cmd
}

func (c *showCommand) run(ctx context.Context) error {
	s, err := c.local.report(ctx, c.conn)
	if err != nil {
		return registration.ExplainAsk(err)
	}
	if !c.output.IsTable() {
		return c.output.Structured(c.std.Out, s)
	}
	return printReport(c.std.Out, s, c.output.Value == "wide")
}

func printReport(w io.Writer, s Report, wide bool) error {
	tabs := cli.NewTable(w, wide)
	tabs.Row([]string{"SVID", "HINT", "VALID FOR"}, "NOT AFTER", "KEY", "CHAIN", "DNS NAMES", "ISSUER")
	for _, v := range s.SVIDs {
		tabs.Row([]string{v.SPIFFEID, v.Hint, until(s.Asked, v.NotAfter)},
			v.NotAfter.UTC().Format(timeLayout), v.Key, fmt.Sprint(v.Chain), strings.Join(v.DNSNames, ","), v.Issuer)
	}
	tabs.Section()
	tabs.Row([]string{"TRUST DOMAIN", "KIND", "ROOTS", "JWT KEYS"}, "ROOTS UNTIL", "JWT KEY IDS")
	for _, b := range s.Bundles {
		kind := "federated"
		if b.Own {
			kind = "own"
		}
		var untils []string
		for _, root := range b.Roots {
			untils = append(untils, root.NotAfter.UTC().Format(timeLayout))
		}
		tabs.Row([]string{b.TrustDomain, kind, fmt.Sprint(len(b.Roots)), fmt.Sprint(len(b.JWTKeys))},
			strings.Join(untils, ","), strings.Join(b.JWTKeys, ","))
	}
	if len(s.JWTSVIDs) > 0 {
		tabs.Section()
		tabs.Row([]string{"JWT-SVID", "HINT", "AUDIENCE", "VALID FOR"})
		for _, j := range s.JWTSVIDs {
			tabs.Row([]string{j.SPIFFEID, j.Hint, strings.Join(j.Audience, ","), until(s.Asked, j.Expires)})
		}
	}
	if len(s.Registry) > 0 {
		tabs.Section()
		tabs.Row([]string{"SVID", "AGENT ON THE HUB", "WHY NOT"})
		for _, v := range s.Registry {
			tabs.Row([]string{v.SPIFFEID, v.Agent, v.Refused})
		}
	}
	if p := s.Principal; p != nil {
		tabs.Section()
		tabs.Row([]string{"PRINCIPAL", "SPIFFE ID", "HANDSHAKE", "REGISTERED", "AGENT", "MODE", "WHY NOT"})
		tabs.Row([]string{p.Address, p.SPIFFEID, fmt.Sprint(p.Handshake), fmt.Sprint(p.Registered), p.Agent, p.Mode,
			p.Problem})
	}
	if err := tabs.Flush(); err != nil {
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
