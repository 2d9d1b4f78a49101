package views

import "strconv"

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func zone(local bool) string {
	if local {
		return "local"
	}
	return "utc"
}

// connState and connText are what the connection mark says until the script knows better: without script
// the page reloads itself.
func connState(refresh bool) string {
	if refresh {
		return "reload"
	}
	return "paused"
}

func connText(refresh bool) string {
	if refresh {
		return "Every 15 s"
	}
	return "Paused"
}

func goodBad(ready bool) string {
	if ready {
		return "good"
	}
	return "bad"
}

func partTitle(p Part) string {
	t := p.Name + " (" + p.Kind + "): "
	if p.Ready {
		return t + "ready"
	}
	return t + p.Reason
}

func count(n int) string { return strconv.Itoa(n) }
