"""An editor who uses the pages of Wagtail's admin in a browser."""

from app import browser, value, wait_for
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

BODY = "#panel-child-content-body-section [contenteditable=true]"


def title_of(page):
    return value(f"SELECT title FROM wagtailcore_page WHERE id = {page}")


class Editor:
    def __init__(self, url):
        self.url = url
        self.browser = browser()
        self.open("/admin/login/")
        self.type("#id_username", "admin")
        self.type("#id_password", "admin")
        self.click("button[type=submit]")
        self.see("h2", "Site summary")

    def open(self, path):
        self.browser.get(self.url + path)

    def shown(self, selector, text=""):
        """The elements of the page that are shown and contain the text."""
        found = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return [element for element in found if element.is_displayed() and text in element.text]

    def until(self, what, act):
        """Repeats an act until it returns something true, while scripts change the page."""

        def attempt():
            try:
                return act()
            except WebDriverException:
                return None

        try:
            return wait_for(what, attempt)
        except AssertionError:
            print(self.browser.current_url, self.browser.find_element(By.TAG_NAME, "body").text)
            self.browser.save_screenshot("last.png")
            raise

    def see(self, selector, text=""):
        return self.until(f"{selector} {text}", lambda: self.shown(selector, text))[0]

    def click(self, selector, text=""):
        def attempt():
            for element in self.shown(selector, text):
                element.click()
                return True

        self.until(f"{selector} {text}", attempt)

    def type(self, selector, text):
        """Types into a field until it has the text: a dialog takes the focus, and with it the keys, once it is open."""

        def attempt():
            for field in self.shown(selector)[:1]:
                # Clearing an empty field would begin another search, which may end later.
                if (found := field.get_attribute("value")) and found != text:
                    field.clear()
                if found != text:
                    field.send_keys(text)
                return field.get_attribute("value") == text

        self.until(f"{text} in {selector}", attempt)

    def upload(self, selector, path):
        """Gives a file to a field, which is hidden."""
        self.until(selector, lambda: self.browser.find_elements(By.CSS_SELECTOR, selector))[0].send_keys(path)

    def leave_dialog(self):
        self.until("the end of the dialog", lambda: not self.shown(".modal"))

    def choose_page(self, page):
        """Finds a page by its title in the dialog that is open, and chooses it."""
        self.type(".modal input[name=q]", title_of(page))
        self.click(f".modal a.choose-page[data-id='{page}']")
        self.leave_dialog()

    def write(self, text):
        """Types into the body, and waits until the form has it."""
        self.see(BODY).send_keys(text)
        form = self.browser.find_element(By.NAME, "body")
        self.until("the text in the form", lambda: text in form.get_attribute("value"))

    def link_to(self, page):
        """Makes the text of the body a link."""
        for key in "ak":
            self.see(BODY).send_keys(Keys.CONTROL, key)
        self.choose_page(page)
        form = self.browser.find_element(By.NAME, "body")
        self.until("the link in the form", lambda: page in form.get_attribute("value"))

    def save(self, action, message):
        self.click("footer [data-w-dropdown-target=toggle]")
        self.click(f"button[name=action-{action}]")
        self.see(".messages", message)

    def publish(self):
        self.save("publish", "published")

    def submit(self):
        self.save("submit", "submitted")
