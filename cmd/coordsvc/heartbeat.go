package main

import (
	"net/http"

	"github.com/spf13/cobra"
)

// peerFlags are what heartbeats and shutdown notifications share.
type peerFlags struct {
	instanceID, group, incarnation string
	subscriptions                  []string
	noSubscriptions                bool
	inFlight                       int64
}

func (p *peerFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.instanceID, "instance-id", "", "the worker's id, unique in its group (required)")
	cmd.Flags().StringVar(&p.group, "group", "", `the worker's group (default "default")`)
	cmd.Flags().StringVar(&p.incarnation, "incarnation", "", "new for every start of the process, such as the pod's UID")
	cmd.Flags().StringArrayVar(&p.subscriptions, "subscription", nil, "a subscription that the worker serves; repeat for more")
	cmd.Flags().BoolVar(&p.noSubscriptions, "no-subscriptions", false, "say that the worker serves none, instead of saying nothing")
	cmd.Flags().Int64Var(&p.inFlight, "in-flight-count", 0, "messages that the worker is still busy with; unset: not said")
	cmd.MarkFlagsMutuallyExclusive("subscription", "no-subscriptions")
}

// fields are those of the message; what was not given stays out, because an absent key means something else than a zero.
func (p *peerFlags) fields(cmd *cobra.Command) (map[string]any, error) {
	if p.instanceID == "" {
		return nil, usageError("--instance-id is missing")
	}
	fields := map[string]any{"instance_id": p.instanceID}
	if p.group != "" {
		fields["group"] = p.group
	}
	if p.incarnation != "" {
		fields["incarnation"] = p.incarnation
	}
	switch {
	case p.noSubscriptions:
		fields["subscriptions"] = []string{}
	case len(p.subscriptions) > 0:
		fields["subscriptions"] = p.subscriptions
	}
	if cmd.Flags().Changed("in-flight-count") {
		fields["in_flight_count"] = p.inFlight
	}
	return fields, nil
}

func heartbeatCommand(s *streams) *cobra.Command {
	client := &clientFlags{streams: s}
	peer := &peerFlags{}
	var (
		timestamp  string
		isLeader   bool
		loadFactor float64
		labels     []string
	)
	cmd := &cobra.Command{
		Use:   "heartbeat",
		Short: "Send one heartbeat, for workers that are scripts",
		Example: `  coordsvc heartbeat --instance-id w1 --group orders --subscription eu --subscription us
  coordsvc heartbeat --instance-id w1 --group orders --no-subscriptions --in-flight-count 0`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			message, err := peer.fields(cmd)
			if err != nil {
				return err
			}
			byKey, err := keyValues("label", labels)
			if err != nil {
				return err
			}
			if len(byKey) > 0 {
				message["labels"] = byKey
			}
			if timestamp != "" {
				message["timestamp"] = timestamp
			}
			if cmd.Flags().Changed("is-leader") {
				message["is_leader"] = isLeader
			}
			if cmd.Flags().Changed("load-factor") {
				message["load_factor"] = loadFactor
			}
			answer, err := client.call(cmd.Context(), http.MethodPost, "/v1/heartbeats", message)
			if err != nil {
				return err
			}
			client.print(answer)
			return nil
		},
	}
	peer.register(cmd)
	cmd.Flags().StringVar(&timestamp, "timestamp", "", "the worker's clock, RFC 3339 with offset; unset: stamped on arrival")
	cmd.Flags().BoolVar(&isLeader, "is-leader", false, "the worker leads its own group")
	cmd.Flags().Float64Var(&loadFactor, "load-factor", 0, "how busy the worker is; 1 is its normal capacity")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "KEY=VALUE to find the worker by; repeat for more")
	client.register(cmd)
	return cmd
}
